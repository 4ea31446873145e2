"""A Debian in a folder, booted by systemd-nspawn with systemd as process 1, without a network."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

SUITE = "bookworm"
MIRROR = os.environ.get("BATCHWEAVE_LIVE_MIRROR", "http://deb.debian.org/debian")
# Besides systemd, for the commands of the page: sudo and make, TLS, and ranks in Python.
PACKAGES = "systemd,systemd-sysv,dbus,sudo,make,ca-certificates,python3-numpy"
# Programs of this machine, with the Debian packages that have them.
TOOLS = {"debootstrap": "debootstrap", "systemd-nspawn": "systemd-container"}
BOOT_SECONDS = 180
# Folder of the users' homes in the machine.
HOMES = "/srv"


class CannotRunError(Exception):
    """This machine cannot boot another one; the text is the reason and the remedy."""


class StepError(Exception):
    """A command or an expectation failed."""


def unpacked(package: str, folder: Path) -> None:
    """Unpacks a Debian package below a folder, without installing it."""
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise CannotRunError(
            f"{package} is missing, and this is not Debian or Ubuntu: install {package}"
        )
    done = subprocess.run(
        ["apt-get", "download", "-qq", package],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    files = list(folder.glob(f"{package}_*.deb"))
    if done.returncode != 0 or len(files) != 1:
        raise CannotRunError(
            f"cannot download {package}: {done.stderr.strip()}; install it, or apt-get update"
        )
    subprocess.run(["dpkg", "-x", str(files[0]), str(folder)], check=True)


class Machine:
    """The root folder, and the processes in it while it runs."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.root = scratch / "root"
        self.tools = scratch / "tools"
        self.environment = dict(os.environ)
        self.nspawn: subprocess.Popen[bytes] | None = None
        self.leader = 0
        self.cgroups: list[Path] = []

    @classmethod
    def prepare(cls) -> Machine:
        """Makes a scratch folder with the tools, or says why that is impossible."""
        if os.geteuid() != 0:
            raise CannotRunError(
                "booting a machine needs root (mounts, namespaces, cgroups): run it with sudo"
            )
        if not Path("/sys/fs/cgroup").is_mount():
            raise CannotRunError("/sys/fs/cgroup is not mounted: systemd needs a cgroup tree")
        machine = cls(Path(tempfile.mkdtemp(prefix="live-systemd.")))
        try:
            machine.tools.mkdir()
            for tool, package in TOOLS.items():
                if not shutil.which(tool):
                    unpacked(package, machine.tools)
        except BaseException:
            machine.remove()
            raise
        found = [str(machine.tools / "usr" / part) for part in ("bin", "sbin")]
        machine.environment["PATH"] = ":".join(
            [*found, os.environ.get("PATH", ""), "/usr/sbin:/sbin"]
        )
        if (unpacked_scripts := machine.tools / "usr/share/debootstrap").exists():
            machine.environment["DEBOOTSTRAP_DIR"] = str(unpacked_scripts)
        # A host without the unified hierarchy has only the old one to offer.
        if not Path("/sys/fs/cgroup/cgroup.controllers").exists():
            machine.environment["SYSTEMD_NSPAWN_UNIFIED_HIERARCHY"] = "0"
        return machine

    def install(self) -> str:
        """Installs Debian; copies BATCHWEAVE_LIVE_BASE instead where it names a folder with one."""
        base = os.environ.get("BATCHWEAVE_LIVE_BASE", "")
        if base and Path(base, "usr").is_dir():
            subprocess.run(["cp", "-a", base, str(self.root)], check=True)
            return f"copied from {base}"
        log = self.scratch / "debootstrap.log"
        command = [
            "debootstrap",
            "--variant=minbase",
            f"--include={PACKAGES}",
            SUITE,
            str(self.root),
            MIRROR,
        ]
        with log.open("wb") as out:
            done = subprocess.run(
                command, env=self.environment, stdout=out, stderr=out, check=False
            )
        if done.returncode != 0:
            last = log.read_text(errors="replace").splitlines()[-1:]
            raise CannotRunError(
                f"debootstrap from {MIRROR} failed: {' '.join(last)}; see BATCHWEAVE_LIVE_MIRROR"
            )
        if base:
            subprocess.run(["cp", "-a", str(self.root), base], check=True)
        return f"{SUITE} from {MIRROR}"

    def boot(self) -> str:
        """Starts systemd as the first process, and waits until it has started everything."""
        # debootstrap copies this machine's name, which sudo could not resolve.
        self.write("/etc/hostname", "live\n")
        command = ["systemd-nspawn", "--quiet", "-D", str(self.root), "--boot", "--register=no"]
        command += ["--machine=live", "--private-network", "--console=pipe"]
        if not Path("/run/systemd/system").is_dir():
            command = self.in_own_cgroups([*command, "--keep-unit"])
        with (self.scratch / "console.log").open("ab") as console:
            self.nspawn = subprocess.Popen(
                command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                # A signal of the terminal is for this program, which halts the machine.
                start_new_session=True,
            )
        deadline = time.monotonic() + BOOT_SECONDS
        while time.monotonic() < deadline:
            if self.nspawn.poll() is not None:
                raise CannotRunError(
                    f"systemd-nspawn ended with {self.nspawn.returncode}: {self.console()}"
                )
            self.leader = self.first_process()
            if self.leader:
                state = self.run("systemctl is-system-running --wait", check=False)[1].strip()
                if state in ("running", "degraded"):
                    return f"{self.run('systemctl --version')[1].split(' (')[0].strip()}, {state}"
            time.sleep(0.2)
        raise CannotRunError(f"systemd did not start within {BOOT_SECONDS} s: {self.console()}")

    def in_own_cgroups(self, command: list[str]) -> list[str]:
        """Puts a command into cgroups of its own, as this machine's systemd would if it ran."""
        tree = Path("/sys/fs/cgroup")
        unified = (tree / "cgroup.controllers").exists()
        for parent in [tree] if unified else [tree / "systemd", tree / "unified"]:
            if parent.is_dir() and (own := parent / self.scratch.name) not in self.cgroups:
                own.mkdir()
                self.cgroups.append(own)
        enter = "".join(f"echo $$ >{own}/cgroup.procs; " for own in self.cgroups)
        return ["sh", "-c", f'{enter}exec "$@"', "sh", *command]

    def console(self) -> str:
        """Returns the last lines of the console."""
        lines = (self.scratch / "console.log").read_text(errors="replace").splitlines()
        return " / ".join(line.strip() for line in lines[-5:] if line.strip())

    def first_process(self) -> int:
        """Returns the machine's systemd as a process of this machine, or 0."""
        assert self.nspawn
        children = Path(f"/proc/{self.nspawn.pid}/task/{self.nspawn.pid}/children")
        with contextlib.suppress(OSError):
            for child in children.read_text().split():
                if Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                    return int(child)
        return 0

    def command(self, text: str, user: str, folder: str) -> list[str]:
        """Returns the command line that runs `text` in the machine, with a login's environment."""
        enter = ["nsenter", "--all", f"--target={self.leader}", "/usr/bin/env", "-i"]
        path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        home = "/root" if user == "root" else f"{HOMES}/{user}"
        variables = [
            path,
            f"HOME={home}",
            f"USER={user}",
            "SYSTEMD_PAGER=",
            "SUDO_EDITOR=/usr/local/bin/edit",
        ]
        script = f"cd {folder or home} && {text}"
        if user == "root":
            return [*enter, *variables, "bash", "-c", script]
        return [
            *enter,
            *variables,
            "setpriv",
            f"--reuid={user}",
            f"--regid={user}",
            "--init-groups",
            "bash",
            "-c",
            script,
        ]

    def run(
        self,
        text: str,
        user: str = "root",
        folder: str = "",
        check: bool = True,
        seconds: float = 300,
    ) -> tuple[int, str]:
        """Runs a command in the machine; returns its exit code and output."""
        try:
            done = subprocess.run(
                self.command(text, user, folder),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            raise StepError(f"`{text}` did not end within {seconds} s") from late
        if check and done.returncode != 0:
            raise StepError(f"`{text}` ended with {done.returncode}: {done.stdout.strip()[-1500:]}")
        return done.returncode, done.stdout

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Writes a file of the machine as root."""
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def halt(self) -> None:
        """Ends all processes of the machine."""
        if not self.nspawn or self.nspawn.poll() is not None:
            return
        if self.leader:
            # systemd's signal for an immediate power off; SIGTERM would run it again.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.leader, signal.SIGRTMIN + 4)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.nspawn.wait(timeout=60)
        if self.nspawn.poll() is None:
            if self.leader:
                # The end of the first process ends all of its namespace.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.leader, signal.SIGKILL)
            self.nspawn.kill()
            self.nspawn.wait()

    def remove(self) -> None:
        """Halts the machine and removes its folder."""
        self.halt()
        shutil.rmtree(self.scratch, ignore_errors=True)
        for own in self.cgroups:
            for group in sorted(own.rglob("*/"), reverse=True):
                with contextlib.suppress(OSError):
                    group.rmdir()
            with contextlib.suppress(OSError):
                own.rmdir()
        for left in [self.scratch, *self.cgroups]:
            if left.exists():
                print(f"left behind: {left}", flush=True)
