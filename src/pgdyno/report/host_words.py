"""Describe a machine: its own name where the record knows one, and its hardware."""

from __future__ import annotations

from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.report.format import format_bytes, format_cpus


def describe_machine(host: HostFacts) -> str:
    """Describe hardware: `2 CPUs (AMD EPYC), 4.0 GiB of memory, ext4 on vda`."""
    disk = host.data_disk
    return (
        f"{format_cpus(host.usable_cpu_count)} ({host.cpu_model}), {format_bytes(host.usable_memory_bytes)} of memory,"
        f" {disk.filesystem} on {disk.shown_device}"
    )


def after_name(host: HostFacts, words: str) -> str:
    """Put the machine's name before some words, where the name is known."""
    return words if host.host_name is None else f"{host.host_name}: {words}"


def with_name(letter: str, host: HostFacts) -> str:
    """Return the letter of a record, followed by its machine's name where that is known."""
    return letter if host.host_name is None else f"{letter} ({host.host_name})"
