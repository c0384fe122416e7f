"""Describe a machine: its own name where the record knows one, and its hardware; of one that nobody saw, the server's address."""

from __future__ import annotations

from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.types import StudyRecord
from pgdyno.report.format import format_bytes, format_cpus


def describe_machine(record: StudyRecord) -> str:
    """Describe hardware: `2 CPUs (AMD EPYC), 4.0 GiB of memory, ext4 on vda`."""
    host = record.host
    if host is None:
        return (
            "a machine that was not seen"
            if record.given is None
            else f"the machine at {record.given.address}, not seen"
        )
    disk = host.data_disk
    on = f", {disk.filesystem} on {disk.shown_device}{describe_wal_disk(record)}" if disk.is_known else ""
    return f"{format_cpus(host.usable_cpu_count)} ({host.cpu_name}), {format_bytes(host.usable_memory_bytes)} of memory{on}"


def describe_named_machine(record: StudyRecord) -> str:
    """Describe a machine by its name, where that is known, and its hardware."""
    machine = describe_machine(record)
    return machine if record.host is None else after_name(record.host, machine)


def describe_wal_disk(record: StudyRecord) -> str:
    """Describe the disk of pg_wal, to follow that of the data: `, pg_wal on xfs on vdb`; empty if it is the same."""
    wal = record.wal_disk
    return "" if wal is None else f", pg_wal on {wal.filesystem} on {wal.shown_device}"


def describe_given(record: StudyRecord) -> str:
    """Describe where a given server is reached, its machine where that was watched, and where the load came from."""
    at = "" if record.given is None else f" at {record.given.address}"
    server = f"PostgreSQL {record.server.version.partition(' ')[0]}{at}"
    if record.host is None:
        return f"{server}, whose machine was not seen{describe_load_host(record)}"
    watched = record.server_host
    is_same = watched is not None and watched.is_load_host and not record.load_hosts
    load = "; the load came from the same machine" if is_same else describe_load_host(record)
    return f"{server}, on {describe_named_machine(record)}{load}"


def after_name(host: HostFacts, words: str) -> str:
    """Put the machine's name before some words, where the name is known."""
    return words if host.host_name is None else f"{host.host_name}: {words}"


def with_name(letter: str, record: StudyRecord) -> str:
    """Return the letter of a record, followed by its machine's name where that is known, or by the server's address."""
    name = name_machine(record)
    return letter if name is None else f"{letter} ({name})"


def name_machine(record: StudyRecord) -> str | None:
    """Return the machine's own name, or the address of a server whose machine nobody saw; None if neither is recorded."""
    if record.host is not None:
        return record.host.host_name
    return None if record.given is None else record.given.address


def describe_load_host(record: StudyRecord) -> str:
    """Say where the load came from, to follow the server's machine; empty if it came from there."""
    if record.load_host is None:
        return ""
    return f"; the load came from {name_load_machine(record)}{' by ssh' if record.load_hosts else ''}"


def name_load_machine(record: StudyRecord) -> str:
    """Name the machines that the load came from; of one that is no load host, also its size."""
    if record.load_hosts:
        return ", ".join(one.name for one in record.load_hosts)
    host = record.load_host
    if host is None:
        return "another machine"
    size = f"{format_cpus(host.usable_cpu_count)}, {format_bytes(host.usable_memory_bytes)}"
    return f"{host.host_name or 'another machine'} ({size})"
