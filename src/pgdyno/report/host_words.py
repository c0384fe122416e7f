"""A machine in words: its own name where a record knows one, and what it is made of, which machines of one make share."""

from __future__ import annotations

from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.report.format import format_bytes, format_cpus


def describe_machine(host: HostFacts) -> str:
    """`2 CPUs (AMD EPYC), 4.0 GiB of memory, ext4 on vda`: what tells machines of one make from those of another."""
    disk = host.data_disk
    return (
        f"{format_cpus(host.usable_cpu_count)} ({host.cpu_model}), {format_bytes(host.usable_memory_bytes)} of memory,"
        f" {disk.filesystem} on {disk.shown_device}"
    )


def after_name(host: HostFacts, words: str) -> str:
    """Words about a machine, after its name where that is known."""
    return words if host.host_name is None else f"{host.host_name}: {words}"


def with_name(letter: str, host: HostFacts) -> str:
    """The letter that stands for a record, and its machine's name where that is known."""
    return letter if host.host_name is None else f"{letter} ({host.host_name})"
