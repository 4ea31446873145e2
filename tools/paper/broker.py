"""A Kafka broker of one node (KRaft), from a folder of jars or from Maven's repository."""

from __future__ import annotations

import contextlib
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

from paper.experiment import Context, Outcome
from paper.programs import ROOT, FailedError, Program, note, until

VERSION, _LOGGING = "4.1.1", "1.7.36"
_CACHE = ROOT / "target" / "paper-kafka"
"""Where fetched jars stay for the next run."""
MESSAGE_MAX = 128 << 20
"""The largest batch of messages that the broker takes."""
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
_POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>paper</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies>
    {_DEPENDENCY.format("org.apache.kafka", "kafka_2.13", VERSION)}</dependency>
    {_DEPENDENCY.format("org.slf4j", "slf4j-simple", _LOGGING)}</dependency>
  </dependencies>
</project>
"""
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.quorum.voters=1@127.0.0.1:{controller}
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
auto.create.topics.enable=false
log.segment.delete.delay.ms=0
message.max.bytes={most}
replica.fetch.max.bytes={most}
"""
# Those of kafka-server-start.sh and kafka-run-class.sh.
_JVM = "-server -Xms1G -Xmx1G -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -Djava.awt.headless=true"
_QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
_FETCH_SECONDS, _START_SECONDS = 900.0, 120.0


def jars(given: Path | None, folder: Path) -> Path:
    """Returns the folder of Kafka's jars: the given one, or one that Maven fills."""
    if given is not None:
        for place in (given, given / "libs"):
            if any(place.glob("kafka_*.jar")):
                return place.absolute()
        raise FailedError(f"--kafka {given}: neither it nor its libs has a kafka_*.jar")
    target = folder / VERSION
    if any(target.glob("kafka_*.jar")):
        return target
    if shutil.which("mvn") is None:
        raise FailedError("no Maven (mvn) to fetch Kafka with: install it, or --kafka DIR")
    note(f"fetching Kafka {VERSION} by Maven; --kafka DIR takes jars that are there already")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pom.xml").write_text(_POM)
    words = ["mvn", "--quiet", "--batch-mode", "--file", str(folder / "pom.xml")]
    words += ["dependency:copy-dependencies", "-DincludeScope=runtime"]
    words += [f"-DoutputDirectory={target}"]
    with Program("Maven", words, folder / "maven.log") as maven:
        maven.wait(_FETCH_SECONDS)
    return target


class Broker(Program):
    """A running broker."""

    def __init__(self, java: str, folder: Path, found: Path) -> None:
        """Formats a data folder and starts."""
        self.data = folder / "kafka-data"
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            other.bind(("127.0.0.1", 0))
            port, controller = one.getsockname()[1], other.getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        file = folder / "server.properties"
        file.write_text(
            _PROPERTIES.format(port=port, controller=controller, data=self.data, most=MESSAGE_MAX)
        )
        base = [java, *_JVM.split(), _QUIET, "-cp", f"{found}/*"]
        words = [*base, "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ"]
        with Program("java", [*words, "-c", str(file)], folder / "format.log") as formatting:
            formatting.wait(_START_SECONDS)
        super().__init__("Kafka", [*base, "kafka.Kafka", str(file)], folder / "kafka.log")
        try:
            until(lambda: self._answers(port), _START_SECONDS, "", self)
        except BaseException:
            self.kill()
            raise

    def _answers(self, port: int) -> bool:
        if self.ended():
            raise self.failed("has ended at its start")
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", port)) == 0

    def until_removed(self, topic: str) -> None:
        """Waits until the files of a deleted topic are gone."""
        until(lambda: not any(self.data.glob(f"{topic}[-.]*")), _START_SECONDS, "", self)


@contextlib.contextmanager
def brokers(ctx: Context, out: Outcome) -> Iterator[Broker | None]:
    """Runs a broker; None, with the reason on the page, where there can be none."""
    try:
        if "confluent_kafka" not in ctx.packages:
            raise FailedError(f"{ctx.python} has no confluent_kafka: pip install confluent-kafka")
        if shutil.which(ctx.java) is None:
            raise FailedError(f"no Java ({ctx.java}): install Java 17 or newer, or --java PROGRAM")
        started = Broker(ctx.java, ctx.sub("kafka"), jars(ctx.kafka, _CACHE))
    except FailedError as why:
        out.lacks("Kafka", str(why))
        yield None
        return
    with started:
        yield started
