"""A Kafka broker of one node (KRaft), from a folder of jars or from Maven's repository."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from paper.programs import FailedError, Program, note

VERSION = "4.1.1"
"""The version that is fetched."""
_LOGGING = "1.7.36"
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>paper</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
      <version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId>
      <version>{logging}</version>
    </dependency>
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
message.max.bytes={message_max}
replica.fetch.max.bytes={message_max}
"""
_CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"
# Those of kafka-server-start.sh and kafka-run-class.sh.
_JVM = [
    "-server",
    "-Xms1G",
    "-Xmx1G",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
]
_FETCH_SECONDS, _START_SECONDS = 900.0, 120.0


def jars(given: Path | None, folder: Path, version: str) -> Path:
    """Returns the folder of Kafka's jars: the given one, or one that Maven fills."""
    if given is not None:
        for place in (given, given / "libs"):
            if any(place.glob("kafka_*.jar")):
                return place.absolute()
        raise FailedError(
            f"--kafka {given}: neither it nor {given / 'libs'} has a kafka_*.jar: name the folder "
            "of a Kafka distribution or of its jars, or leave the option out to fetch them by Maven"
        )
    target = folder / version
    if any(target.glob("kafka_*.jar")):
        return target
    if shutil.which("mvn") is None:
        raise FailedError(
            "there is no Maven (mvn) to fetch Kafka with: install it, or name a folder with "
            "Kafka's jars: --kafka DIR"
        )
    note(f"fetching Kafka {version} by Maven; --kafka DIR takes jars that are there already")
    folder.mkdir(parents=True, exist_ok=True)
    pom = folder / "pom.xml"
    pom.write_text(_POM.format(version=version, logging=_LOGGING))
    words = ["mvn", "--quiet", "--batch-mode", "--file", str(pom), "dependency:copy-dependencies"]
    words += ["-DincludeScope=runtime", f"-DoutputDirectory={target}"]
    with Program("Maven", words, folder / "maven.log") as maven:
        maven.wait(_FETCH_SECONDS)
    return target


class Broker(Program):
    """A running broker."""

    def __init__(self, java: str, folder: Path, jars: Path, message_max: int) -> None:
        """Formats a data folder and starts; `message_max`: the largest batch of messages."""
        if shutil.which(java) is None:
            raise FailedError(
                f"cannot find Java ({java}) for the broker: install Java 17 or newer, or name it: "
                "--java PROGRAM"
            )
        self.data = folder / "kafka-data"
        port, controller = _free_ports()
        self.address = f"127.0.0.1:{port}"
        properties = folder / "server.properties"
        properties.write_text(
            _PROPERTIES.format(
                port=port, controller=controller, data=self.data, message_max=message_max
            )
        )
        base = [java, *_JVM, "-cp", f"{jars}/*"]
        with Program("java", _format(base, properties), folder / "format.log") as formatting:
            formatting.wait(_START_SECONDS)
        log = folder / "kafka.log"
        super().__init__("the Kafka broker", [*base, "kafka.Kafka", str(properties)], log)
        try:
            self._until_it_answers(port)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Broker:
        return self

    def _until_it_answers(self, port: int) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            if self.ended():
                raise self.failed("has ended at its start")
            with socket.socket() as connection:
                if connection.connect_ex(("127.0.0.1", port)) == 0:
                    return
            if time.monotonic() > deadline:
                raise self.failed(f"does not listen after {_START_SECONDS:g} s")
            time.sleep(0.1)

    def until_removed(self, topic: str) -> None:
        """Waits until the files of a deleted topic are gone."""
        deadline = time.monotonic() + _START_SECONDS
        while any(self.data.glob(f"{topic}-*")) or any(self.data.glob(f"{topic}.*")):
            if self.ended():
                raise self.failed("has ended")
            if time.monotonic() > deadline:
                raise self.failed(f"has not removed the topic {topic} in {_START_SECONDS:g} s")
            time.sleep(0.05)


def _format(base: Sequence[str], properties: Path) -> list[str]:
    words = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(properties)]
    return [*base, *words]


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]
