"""A job finds its workers, or says what is in the way; what it starts is gone when it ends."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from hushpore.base.errors import DeviceError, InputError, MissingPackageError
from hushpore.cluster import connection
from hushpore.cluster.connection import connect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from distributed import LocalCluster

distributed = pytest.importorskip("distributed")


@pytest.fixture
def scheduler() -> Iterator[LocalCluster]:
    """A scheduler that is reached over the network, with one worker."""
    place = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "protocol": "tcp://"}
    with distributed.LocalCluster(n_workers=1, processes=False, **place) as cluster:
        yield cluster


def test_local_starts_processes_of_one_thread_that_only_this_machine_reaches() -> None:
    with connect("local:2", memory=0.5) as client:
        workers = client.scheduler_info()["workers"].values()
        assert [each["nthreads"] for each in workers] == [1, 1]
        assert [each["memory_limit"] for each in workers] == [500_000_000] * 2
        assert all(each["host"] == "127.0.0.1" for each in workers)
        assert client.submit(sum, [1, 2]).result() == 3
        processes = [psutil.Process(pid) for pid in client.run(os.getpid).values()]
        assert all(each.is_running() for each in processes)
        # busy until long after the end
        client.map(time.sleep, [600, 601])
    psutil.wait_procs(processes, timeout=60)
    assert not any(each.is_running() for each in processes)


def test_local_leaves_the_environment_as_it_was() -> None:
    before = dict(os.environ)
    with connect("local:1", memory=1):
        pass
    assert dict(os.environ) == before


def test_a_scheduler_is_found_by_its_address_and_by_its_file(
    scheduler: LocalCluster, tmp_path: Path
) -> None:
    file = tmp_path / "scheduler.json"
    file.write_text(json.dumps(scheduler.scheduler.identity()), encoding="utf-8")
    for where in (scheduler.scheduler_address, str(file)):
        with connect(where) as client:
            assert client.submit(sum, [1, 2]).result() == 3
    # it is not ours to close
    assert scheduler.status.name == "running"


def test_a_client_is_used_and_left_open(scheduler: LocalCluster) -> None:
    with distributed.Client(scheduler, set_as_default=False) as given:
        with connect(given) as client:
            assert client is given
        assert given.status == "running"


@pytest.mark.parametrize("where", ["local", "local:", "local:0", "local:two", "nowhere.json", ""])
def test_what_is_no_place_is_refused(where: str) -> None:
    with pytest.raises(InputError, match="local:2"), connect(where):
        pass


def test_workers_without_memory_are_refused() -> None:
    with pytest.raises(InputError, match="above 0 GB"), connect("local:1", memory=0):
        pass


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_PATIENCE", 0.2)
    refused = pytest.raises(DeviceError, match=r"tcp://127.0.0.1:1 does not answer.*is running and")
    with refused, connect("tcp://127.0.0.1:1"):
        pass


def test_a_scheduler_without_workers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_PATIENCE", 0.2)
    place = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "protocol": "tcp://"}
    with distributed.LocalCluster(n_workers=0, processes=False, **place) as cluster:
        refused = pytest.raises(DeviceError, match=r"no workers.*dask worker tcp://")
        with refused, connect(cluster.scheduler_address):
            pass


def test_other_versions_are_refused(
    scheduler: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = distributed.Client.get_versions

    def older(self: distributed.Client, **options: object) -> object:
        found = seen(self, **options)
        for each in found["workers"].values():
            each["packages"] = {**each["packages"], "hushpore": "0.0.1", "distributed": None}
        return found

    monkeypatch.setattr(distributed.Client, "get_versions", older)
    stated = r"hushpore 0\.0\.1 on .*distributed is not installed"
    with pytest.raises(DeviceError, match=stated), connect(scheduler.scheduler_address):
        pass


def test_tls_without_certificates_names_where_they_are_missing() -> None:
    refused = pytest.raises(DeviceError, match=r"distributed\.comm\.tls\.ca-file")
    with refused, connect("tls://127.0.0.1:8786"):
        pass


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_tls_takes_the_certificates_of_dasks_configuration_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dask

    def configured(owner: str) -> Any:
        key, certificate = tmp_path / f"{owner}.key.pem", tmp_path / f"{owner}.pem"
        files = ["-keyout", str(key), "-out", str(certificate)]
        kind = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
        subprocess.run(["openssl", "req", *kind, *files], check=True, capture_output=True)
        tls = {"ca-file": str(certificate)}
        for part in ("scheduler", "worker", "client"):
            tls |= {f"{part}.cert": str(certificate), f"{part}.key": str(key)}
        named = {f"distributed.comm.tls.{name}": each for name, each in tls.items()}
        return dask.config.set(named)

    with configured("mine"):
        place = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "protocol": "tls://"}
        secure = distributed.Security()
        with distributed.LocalCluster(
            n_workers=1, processes=False, security=secure, **place
        ) as cluster:
            assert cluster.scheduler_address.startswith("tls://")
            with connect(cluster.scheduler_address) as client:
                assert client.submit(sum, [1, 2]).result() == 3
            address = cluster.scheduler_address
            monkeypatch.setattr(connection, "_PATIENCE", 0.3)
            refused = pytest.raises(DeviceError, match="does not answer")
            with configured("theirs"), refused, connect(address):
                pass
            with refused, connect(address.replace("tls://", "tcp://")):
                pass


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingPackageError, match=r"hushpore\[cluster\]"), connect("local:1"):
        pass
