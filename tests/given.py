"""A stored record made into one of a server of the user's whose machine nobody saw."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TypeVar

import msgspec

from pgdyno.record.machine.given_server import Capability, GivenServer, RoundTrip
from pgdyno.record.samples.clock import SERVER_CLOCK_FILE, ClockExchange, append_exchanges
from pgdyno.record.samples.files import _pack, read_os_samples
from pgdyno.record.samples.pings import PINGS_FILE
from pgdyno.record.store import RecordStore, open_record
from pgdyno.record.types import UNREAD_LOG, UNSEEN_GAPS, StudyRecord, TrialRecord, WatchedHost

_T = TypeVar("_T")
LOG_PREFIX = "%u|%d|"
"""Of the log of a server whose statements are looked at, with `log_statement = all`."""
# With its further lines.
_LOGGED = re.compile(r"^([^|\n]*)\|([^|\n]*)\|.*?LOG:  (?:statement|execute [^:\n]*): \s*(.*(?:\n\t.*)*)", re.MULTILINE)
# Functions that only read, then keywords before a parenthesis, and the one alias with columns.
_READING = re.compile(
    r"""
    array_agg | bool_or | coalesce | count | current_database | current_setting | extract | filter | format | greatest |
    has_database_privilege | has_function_privilege | has_parameter_privilege | has_table_privilege | host |
    inet_client_port | jsonb_agg | jsonb_build_object | jsonb_object_agg | least | lower | max | min | nullif |
    pg_backend_pid | pg_conf_load_time | pg_control_checkpoint | pg_control_system | pg_current_wal_flush_lsn |
    pg_current_wal_insert_lsn | pg_current_wal_lsn | pg_database_collation_actual_version | pg_database_size | pg_has_role |
    pg_is_in_recovery | pg_is_wal_replay_paused | pg_last_wal_receive_lsn | pg_last_wal_replay_lsn | pg_ls_waldir |
    pg_postmaster_start_time | pg_relation_size | pg_size_bytes | pg_stat_get_activity | pg_table_size |
    pg_total_relation_size | pg_wal_lsn_diff | quote_ident | shobj_description | split_part | starts_with | string_agg | sum
    | to_char | to_jsonb | to_regclass | unnest | version
    | all | and | any | array | as | by | else | exists | from | in | not | on | or | over | select | then | values | when |
    where | asked
    """,
    re.VERBOSE,
)
_TEXT = re.compile(r"'(?:[^']|'')*'")
_CALL = re.compile(r"([\w.\"]+)\s*\(")
_RELATION = re.compile(r"(?<!DISTINCT )(?<!\(epoch )\b(?:FROM|JOIN)\s+(?:LATERAL\s+)?([\w.\"]+)")
_KNOWN_RELATION = re.compile(r"(?:pg_catalog\.)?(?:pg_\w+|unnest)|SELECT|VALUES")
_OWN_SETTING = re.compile(
    r"(?:pg_catalog\.)?set_config\((?:'(\w+)', pg_catalog\.current_setting\('\1'\), true|'(?:application_name|idle_session_timeout)', [^,()]*, false)\)"
)
_SETS = r'SET LOCAL "?[\w.]+"? = [^;]*'
_NO_READING = re.compile(
    r";|--|/\*|\$\w*\$|\bINTO\b|\bFOR\s+(?:NO\s+KEY\s+UPDATE|UPDATE|KEY\s+SHARE|SHARE)\b", re.IGNORECASE
)
_WRITING = (
    "SELECT pg_catalog.pg_stat_reset()",
    "SELECT lo_create(0)",
    "SELECT pg_catalog.pg_advisory_lock(1)",
    "SELECT 1; DROP TABLE orders",
    "SELECT 1 INTO made",
    "SELECT id FROM orders",
    "SELECT name FROM pg_settings FOR UPDATE",
    "SELECT pg_catalog.set_config('work_mem', '1GB', false)",
)
_CLOSED_LIST = re.compile(
    rf"BEGIN[^;]*(?:; (?:{_SETS}|SET TRANSACTION READ ONLY))*|ROLLBACK[^;]*|SAVEPOINT [^;]*|RELEASE [^;]*|{_SETS}"
    r"|EXPLAIN \(FORMAT JSON, SETTINGS\) SELECT [^;]*;?|",
    re.DOTALL,
)
_ENDED = re.compile(r"pg_terminate_backend\(.*?DETAIL:  [Pp]arameters: \$1 = '([^']*)'", re.DOTALL)
_OWN_NAME = r'"pgdyno_[0-9a-f]{32}(?:_[0-9a-f]{8}_run)?"'
# What a study asks for outside of the databases that it made, beside the above; without FORCE where autovacuum is in one.
_OF_DATABASES = re.compile(
    rf"CREATE DATABASE {_OWN_NAME}(?: TEMPLATE [^;]*)?|DROP DATABASE IF EXISTS {_OWN_NAME}(?: WITH \(FORCE\))?"
    rf"|COMMENT ON DATABASE {_OWN_NAME} IS 'pgdyno .*'"
    rf"|SET LOCAL ROLE NONE; ALTER ROLE SESSION_USER IN DATABASE {_OWN_NAME} SET search_path = public"
    # Sessions of its own role in a database of its own, which a pooler keeps; the log's next lines name the database.
    r"|SELECT pg_catalog\.pg_terminate_backend\(a\.pid\) FROM .* WHERE d\.datname = \$1 AND a\.usesysid = d\.datdba"
    r"|LOAD '\$libdir/pg_prewarm'",
    re.DOTALL,
)
RECORDS = Path(__file__).parent / "data" / "records"
SERVER = GivenServer(
    host="db1.example",
    port=5432,
    dbname="postgres",
    role="bench",
    version="18.6",
    major=18,
    is_superuser=False,
    is_in_recovery=False,
    is_read_only=False,
    is_encrypted=True,
    is_local=False,
    service=None,
    settings_way="",
    pooler=None,
    has_pooled_transactions=False,
    free_connections=96,
    active_sessions=None,
    round_trip=RoundTrip(median_s=0.00008, n=400),
    capabilities=(
        Capability(
            name="CREATE DATABASE", group="load", shows="a database of pgdyno's own, so that no other is touched"
        ),
        Capability(
            name="CHECKPOINT",
            group="load",
            shows="trials that begin just after a checkpoint",
            refusal='role "bench" has no privileges of pg_checkpoint',
            grants=("GRANT pg_checkpoint TO bench",),
        ),
        Capability(
            name="pg_prewarm",
            group="load",
            shows="data that are in memory before a trial",
            refusal="function pg_prewarm(regclass) does not exist",
        ),
        Capability(
            name="pg_stat_database", group="counters", shows="transactions, rollbacks, pages read and found in memory"
        ),
        Capability(name="own sessions", group="waits", shows="what the load's own sessions wait for"),
        Capability(
            name="other sessions",
            group="waits",
            shows="who else is at work in the server: other clients, autovacuum, the checkpointer",
            refusal="<insufficient privilege> for 8 of its processes",
            grants=("GRANT pg_monitor TO bench",),
        ),
    ),
)


def give(name: str, folder: Path, *, server: GivenServer = SERVER, is_older: bool = False) -> RecordStore:
    """Copy a stored record into a folder, and take from it all that only the server's machine showed.

    Args:
        name: Of the record.
        folder: Where the copy goes.
        server: What was seen of the server.
        is_older: Whether it is as an earlier pgdyno made it: without pings, and without samples of the load's machine.
    """
    place = folder / name
    shutil.copytree(RECORDS / name, place)
    record = _read(place / "record.json", StudyRecord)
    command = ("pgdyno", "bench", "--dsn", "host=db1.example user=bench", "--scale", "5")
    host = msgspec.structs.replace(record.host, host_name="load1")
    programs = msgspec.structs.replace(record.server, configure=None)
    study = msgspec.structs.replace(record.study, question="")
    given = msgspec.structs.replace(
        record, host=None, preflight=None, given=server, load_host=host, command=command, study=study, server=programs
    )
    _write(place / "record.json", given)
    for trial_dir in (place / "trials").iterdir():
        (trial_dir / "server.log").unlink()
        (trial_dir / "os.parquet").rename(trial_dir / "generator.parquet")
        trial = _read(trial_dir / "trial.json", TrialRecord)
        _write(trial_dir / "trial.json", msgspec.structs.replace(trial, gaps=UNSEEN_GAPS))
        if is_older:
            (trial_dir / "generator.parquet").unlink()
        else:
            _ping(trial_dir / PINGS_FILE, trial)
    return open_record(place)


def list_unexpected(log: str, *, role: str, scripts: str = "", settings: tuple[str, ...] = ()) -> list[str]:
    """Return the statements of a role outside of pgdyno's own databases that are neither expected nor on the closed list.

    Args:
        log: What the server has logged.
        role: Whose statements.
        scripts: Matches statements of the load's scripts.
        settings: Settings of the whole server that may be changed.
    """
    change = rf"ALTER SYSTEM (?:SET \"(?:{'|'.join(settings)})\" = .*|RESET \"(?:{'|'.join(settings)})\")"
    # psycopg forgets what it has prepared after an ALTER.
    of_settings = (change, r"SELECT pg_catalog\.pg_reload_conf\(\) AS is_sent", "DEALLOCATE ALL") if settings else ()
    said = [words.strip() for user, database, words in _LOGGED.findall(log) if user == role and not _is_own(database)]
    assert said
    assert all(_is_own(name) for name in _ENDED.findall(log))
    # A list that lets everything through proves nothing.
    assert not any(map(_only_reads, _WRITING))
    return sorted(
        {
            one
            for one in said
            if not _only_reads(one)
            and not any(re.fullmatch(ok, one) for ok in (scripts, *of_settings, _CLOSED_LIST, _OF_DATABASES))
        }
    )


def _only_reads(statement: str) -> bool:
    """Return whether it is one SELECT of PostgreSQL's own views that calls nothing but what is known to read."""
    bare = _TEXT.sub("''", _OWN_SETTING.sub("", statement))
    calls = {name.lower().removeprefix("pg_catalog.") for name in _CALL.findall(bare)}
    relations = [name for name in _RELATION.findall(bare) if name.lower().removeprefix("pg_catalog.") not in calls]
    return (
        bare.startswith("SELECT")
        and not _NO_READING.search(bare)
        and all(map(_READING.fullmatch, calls))
        and all(map(_KNOWN_RELATION.fullmatch, relations))
    )


def _is_own(database: str) -> bool:
    return re.fullmatch(r"pgdyno_[0-9a-f]{32}(?:_[0-9a-f]{8}_run)?", database) is not None


def watch(store: RecordStore, name: str, *, ahead_s: float, is_load_host: bool = False) -> None:
    """Give back to a record what its server's machine showed, as if it had been watched by ssh.

    Args:
        store: What `give` made.
        name: The stored record that it was made of.
        ahead_s: How far the machine's clock is ahead of the load's.
        is_load_host: Whether it is the load's machine, too.
    """
    was = _read(RECORDS / name / "record.json", StudyRecord)
    watched = WatchedHost(name="db1", ssh="postgres@db1", python="3.9.2", boot_id="1", is_load_host=is_load_host)
    record = msgspec.structs.replace(store.read_record(), format_version=4, host=was.host, server_host=watched)
    _write(store.path / "record.json", record)
    for trial_dir in (store.path / "trials").iterdir():
        samples = read_os_samples(RECORDS / name / "trials" / trial_dir.name)
        times_s = samples.frame["t_s"]
        shifted = msgspec.structs.replace(samples, frame=samples.frame.with_columns(times_s + ahead_s))
        _pack(shifted, trial_dir / "os.parquet")
        near_s = float(times_s[0])
        one = ClockExchange(burst=0, sent_s=near_s, far_s=near_s + 0.0001 + ahead_s, received_s=near_s + 0.0002)
        append_exchanges(trial_dir / SERVER_CLOCK_FILE, [one])
        trial = _read(trial_dir / "trial.json", TrialRecord)
        _write(trial_dir / "trial.json", msgspec.structs.replace(trial, gaps=(UNREAD_LOG,)))


def _ping(path: Path, trial: TrialRecord) -> None:
    """Write pings of 0.06 to 0.1 ms, and a quicker one of before the load."""
    assert trial.load_start_monotonic_s is not None
    pings = [(trial.load_start_monotonic_s - 1.0, 0.00001)]
    pings += [(trial.load_start_monotonic_s + 0.1 * n, 0.00006 + 0.00001 * (n % 5)) for n in range(1, 80)]
    lines: list[object] = [{"format": 1, "kind": "ping", "statement": "SELECT", "rate_per_s": 10.0}, *pings]
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


def _read(path: Path, kind: type[_T]) -> _T:
    return msgspec.json.decode(path.read_bytes(), type=kind)


def _write(path: Path, value: msgspec.Struct) -> None:
    path.write_bytes(msgspec.json.encode(value))
