"""Hold all SQL that pgdyno sends, built from `facts`, and the small readers that send it.

This is one module, so that a DBA can see in one place what pgdyno does inside a server. It never resets statistics (it
uses differences), never leaves an object behind, and reads every column by name. A function of pg_catalog that is given
another type than its own is called by its whole name: else one that somebody else made in the user's database, whose arguments
fit better, would run as the role that asks. Every wait for an answer has a limit:
a server that hangs would otherwise stop a study for ever.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import psycopg
from psycopg import sql as compose
from psycopg.rows import dict_row

from pgdyno.errors import StepFailedError
from pgdyno.facts.readable_counters import (
    ServerCatalogue,
    confirm_counters,
    describe_lost,
    functions_read,
    views_read,
    without_refused,
)
from pgdyno.facts.versions import is_untried
from pgdyno.facts.views import (
    IO_DIMENSIONS,
    IO_VIEW,
    TIMING_SETTINGS,
    Counter,
    FromColumn,
    FromFunction,
    FromIo,
    FromIoColumn,
    FromSum,
    IoColumn,
    ServerCounters,
    Unit,
    server_counters,
    standby_columns,
)
from pgdyno.run.postgres import timeouts
from pgdyno.run.postgres.address import Address
from pgdyno.run.postgres.lost import HINT_LOST, NoConnectionError, no_connection
from pgdyno.run.postgres.timeouts import NoAnswerError

# The types of a record take as long to import as all the rest of the server sampler except psycopg, which has no use
# for them: the functions that return them import them.
if TYPE_CHECKING:
    from pgdyno.record.statements import StatementsLook
    from pgdyno.record.types import Gap, RelationFact, SettingFact, TableState

# A checkpoint writes all dirty buffers: minutes on slow disks.
_CHECKPOINT_PATIENCE_S = 600.0
_HAS_TRANSACTION_TIMEOUT = 170_000

Connection = psycopg.Connection[dict[str, Any]]
Values = dict[str, int | float | None]

SERVER_STATE = f"""
SELECT current_setting('server_version_num')::int AS version_num, pg_backend_pid() AS backend_pid,
       current_setting('block_size')::int AS block_bytes,
       {", ".join(f"coalesce(current_setting('{name}', true), 'off')::bool AS {name}" for name in TIMING_SETTINGS)}"""

# Of a version that pgdyno was not tried with: what its catalogue has of the places that counters are read from.
VIEW_COLUMNS = """
SELECT c.relname::text AS view, pg_catalog.array_agg(a.attname::text) AS columns
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relname = ANY(%s) GROUP BY c.relname"""
FUNCTIONS = """
SELECT DISTINCT proname::text AS name FROM pg_proc
WHERE pronamespace = 'pg_catalog'::regnamespace AND proname = ANY(%s)"""
IO_OBJECTS = "SELECT DISTINCT object FROM pg_stat_io"

# Calling the function under pg_stat_activity saves two joins at ten calls a second. Grouping in the server keeps what
# crosses the socket, and what the client must parse, independent of the number of clients.
WAITS = """
SELECT backend_type, state, wait_event_type, wait_event, count(*) AS observed_count
FROM pg_catalog.pg_stat_get_activity(NULL) WHERE pid <> pg_backend_pid()
GROUP BY backend_type, state, wait_event_type, wait_event"""

# The sources `client` and `session` belong to this connection, not to the server. The values of some settings are not read, since
# they may hold a password or a key. A server that does not archive shows no archive_command.
# What a session asks for counts, but not what libpq asks for by itself.
SETTINGS_NOT_DEFAULT = """
SELECT name, unit, boot_val AS boot_value, source,
       CASE WHEN name = ANY(%s) AND setting <> '(disabled)' THEN %s ELSE setting END AS value
FROM pg_catalog.pg_settings
WHERE setting IS DISTINCT FROM boot_val AND source <> 'session'
  AND NOT (source = 'client' AND name IN ('application_name', 'client_encoding'))
ORDER BY name"""

# `bytes` counts all forks and TOAST; `pages` only the main fork, which scans and caches use.
DATASET = """
SELECT c.oid::regclass::text AS name,
       CASE c.relkind WHEN 'r' THEN 'table' WHEN 'm' THEN 'materialized view' WHEN 'i' THEN 'index'
                      WHEN 'p' THEN 'partitioned table' WHEN 'I' THEN 'partitioned index' END AS kind,
       pg_catalog.pg_table_size(c.oid) AS bytes,
       pg_catalog.pg_relation_size(c.oid) / pg_catalog.current_setting('block_size')::int AS pages,
       nullif(c.reltuples, '-1')::float8 AS rows
FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_index i ON i.indexrelid = c.oid
JOIN pg_catalog.pg_class t ON t.oid = coalesce(i.indrelid, c.oid) JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace
WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast', 'pgdyno') AND t.relpersistence <> 't'
      AND t.relkind IN ('r', 'p', 'm') AND c.relkind IN ('r', 'i', 'p', 'I', 'm')
ORDER BY t.relname, c.relkind NOT IN ('r', 'p', 'm'), c.relname"""

# A copied database begins without counters: until they are set by a vacuum, what pg_class had is to be added.
TABLE_STATES = """
SELECT relid::regclass::text AS name, pg_catalog.pg_total_relation_size(relid) AS bytes,
       n_live_tup + CASE WHEN greatest(last_vacuum, last_autovacuum, last_analyze, last_autoanalyze) IS NULL
                         THEN greatest(reltuples, 0)::int8 ELSE 0 END AS live_rows,
       n_dead_tup AS dead_rows, n_tup_upd AS updated_count, n_tup_hot_upd AS hot_updated_count
FROM pg_catalog.pg_stat_user_tables JOIN pg_catalog.pg_class c ON c.oid = relid WHERE schemaname <> 'pgdyno' ORDER BY name"""

# A line that a later line or file overrides is not a problem; a setting that no line applied is.
UNAPPLIED_SETTINGS = """
SELECT name, coalesce(max(error), 'not applied') AS reason FROM pg_file_settings
WHERE name = ANY(%s) GROUP BY name HAVING NOT bool_or(applied) ORDER BY name"""

# Each process of the server reads the files by itself and keeps its own time of doing so: a session that has read them
# after its request sees what all others see with their next command. An extension's setting that was set once and is
# set no longer is empty; before that it was unknown.
RELOAD = "SELECT pg_catalog.pg_reload_conf() AS is_sent"
LOADED_SETTINGS = """
SELECT pg_catalog.pg_conf_load_time()::text AS loaded_at,
       ARRAY(SELECT coalesce(pg_catalog.current_setting(name, true), '') FROM pg_catalog.unnest(%s::text[]) WITH ORDINALITY AS asked (name, place) ORDER BY place)
         AS shown"""

# pg_wal_lsn_diff() of a standby's own slots counts from what it has replayed.
SLOTS = """
SELECT slot_name::text AS name, active AS is_active, slot_type = 'logical' AS is_logical,
       greatest(0, pg_catalog.pg_wal_lsn_diff(CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
                                                   ELSE pg_catalog.pg_current_wal_lsn() END, restart_lsn))::int8 AS behind_bytes
FROM pg_catalog.pg_replication_slots WHERE restart_lsn IS NOT NULL ORDER BY slot_name"""

# For a running server that pgdyno did not create, through psql as the account that owns it; pgdyno chooses `names`. One
# JSON document.
SERVER_LOOK = """
SELECT jsonb_build_object(
    'settings', (SELECT jsonb_object_agg(name, setting) FROM pg_settings WHERE name = ANY (ARRAY[{names}])),
    'set_names', (SELECT coalesce(jsonb_agg(name), '[]') FROM pg_settings WHERE source NOT IN ('default', 'override')),
    'waiting_names', (SELECT coalesce(jsonb_agg(name), '[]') FROM pg_settings WHERE pending_restart),
    'start_names', (SELECT coalesce(jsonb_agg(name), '[]') FROM pg_settings
                    WHERE source IN ('command line', 'environment variable')),
    'is_in_recovery', pg_is_in_recovery(),
    'slots', (SELECT coalesce(jsonb_agg(to_jsonb(s)), '[]') FROM ({slots}) AS s),
    'active_sessions', (SELECT count(*) FROM pg_stat_activity
                        WHERE backend_type = 'client backend' AND state <> 'idle' AND pid <> pg_backend_pid()))"""

DATABASES = "SELECT coalesce(jsonb_agg(datname ORDER BY oid DESC), '[]') FROM pg_database WHERE datallowconn AND NOT datistemplate"
BRANCHES = """
SELECT coalesce(jsonb_agg(reltuples ORDER BY oid), '[]') FROM pg_class
 WHERE relname = 'pgbench_branches' AND relkind = 'r' AND reltuples >= 0"""

# What the server finds in its files as they are now, whatever it has loaded.
FILE_ERRORS = """
SELECT coalesce(jsonb_agg(jsonb_build_object(
    'file', sourcefile, 'line', sourceline, 'name', name, 'value', setting, 'error', error) ORDER BY seqno), '[]')
FROM pg_file_settings WHERE error IS NOT NULL"""

# For such a server before and after it is changed. pg_settings does not show what an extension that is not loaded
# defines.
NAMED_SERVER = """
SELECT jsonb_build_object(
    'is_superuser', current_setting('is_superuser')::bool,
    'is_in_recovery', pg_is_in_recovery(),
    'may_alter_system', coalesce(current_setting('allow_alter_system', true), 'on')::bool,
    'data_directory', (SELECT setting FROM pg_settings WHERE name = 'data_directory'),
    'config_file', (SELECT setting FROM pg_settings WHERE name = 'config_file'),
    'loaded_at', pg_conf_load_time()::text,
    'settings', (SELECT coalesce(jsonb_object_agg(asked.name, jsonb_build_object(
                        'value', coalesce(setting, current_setting(asked.name, true)), 'source', coalesce(source, ''),
                        'context', coalesce(context, ''), 'is_waiting', coalesce(pending_restart, false))), '{{}}')
                 FROM unnest(ARRAY[{names}]::text[]) AS asked (name) LEFT JOIN pg_settings s ON lower(s.name) = asked.name))"""

# For a server of which only a connection string is known. Each is a query of its own, because a server may refuse any.
# The server itself ends what takes long, so that nothing goes on there when this session has given up.
BEGIN_CAREFULLY = "SET LOCAL search_path = pg_catalog; SET LOCAL statement_timeout = '5s'"
# From version 17 on.
NO_TRANSACTION_TIMEOUT = "SET LOCAL transaction_timeout = 0"
# Longer than any query that pgdyno waits for; a pgdyno that stands still holds no transaction open for ever.
WAIT_WITHIN = "SET LOCAL idle_in_transaction_session_timeout = '10min'"
LOAD_ROLE = "pgdyno_load"
"""The role by which load hosts come to servers of pgdyno's own."""
STATEMENTS_SCHEMA = """
SELECT nspname AS schema FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace WHERE extname = 'pg_stat_statements'"""
STATEMENTS_INFO = """
SELECT dealloc AS evicted_count, stats_reset::text AS reset_at, current_setting('track_io_timing')::bool AS has_io_time,
       coalesce(current_setting('pg_stat_statements.track_planning', true)::bool, false) AS has_plan_time
FROM {schema}.pg_stat_statements_info"""
# What a function calls is within the statement that called it.
STATEMENTS = """
SELECT to_jsonb(s) AS statement FROM {schema}.pg_stat_statements AS s
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = %s) AND toplevel AND queryid IS NOT NULL
  AND userid IN (SELECT oid FROM pg_roles WHERE rolname IN (current_user, {load_role}))"""
# The limits of a role and of a database count no background workers, such as those of parallel queries; walsenders up to version 17.
# A process whose kind is hidden from this role is counted.
# Source: PostgreSQL 18 src/backend/storage/ipc/procarray.c, CountDBConnections() and CountUserBackends().
_HAS_A_PLACE = "coalesce(backend_type, 'client backend') IN ('client backend', 'walsender')"
GIVEN_SERVER = """
SELECT current_setting('server_version') AS version, version() AS system, current_user::text AS role, quote_ident(current_user) AS quoted_role,
       current_setting('is_superuser')::bool AS is_superuser, pg_is_in_recovery() AS is_in_recovery,
       current_setting('default_transaction_read_only')::bool AS is_read_only,
       (SELECT datistemplate FROM pg_database WHERE datname = current_database()) AS is_template,
       (SELECT coalesce(jsonb_object_agg(name, reset_val::int8), '{}') FROM pg_settings
        WHERE name IN ('statement_timeout', 'transaction_timeout') AND reset_val <> '0') AS timeouts_ms"""
# Of this very connection. Behind a pooler it is the pooler's own to the server.
TLS = "SELECT version || ', ' || cipher AS tls FROM pg_catalog.pg_stat_ssl WHERE pid = pg_catalog.pg_backend_pid()"
# By the process id that libpq was told: a pooler, which tells another one, has no such connection to clients.
GSS_ENCRYPTION = "SELECT count(*)::int AS count FROM pg_catalog.pg_stat_gssapi WHERE pid = %s AND encrypted"
# Connections are counted for the server and the role, whichever has less room; a limit of -1 is none. Members of
# pg_use_reserved_connections may open a few more, which are not for a load.
FREE_CONNECTIONS = f"""
SELECT greatest(0, least(pg_catalog.current_setting('max_connections')::int - sum(numbackends)
                           - CASE WHEN rolsuper THEN 0 ELSE pg_catalog.current_setting('superuser_reserved_connections')::int
                                + coalesce(pg_catalog.current_setting('reserved_connections', true), '0')::int END,
                         CASE WHEN rolconnlimit >= 0 AND NOT rolsuper
                              THEN rolconnlimit - (SELECT count(*) FROM pg_catalog.pg_stat_get_activity(NULL)
                                                   WHERE usesysid = r.oid AND {_HAS_A_PLACE}) END
                        ))::int AS count
FROM pg_catalog.pg_stat_database, pg_catalog.pg_roles r WHERE r.rolname = session_user
GROUP BY rolconnlimit, rolsuper, r.oid"""  # noqa: S608 - made of constants
# Null without a limit of the database that is connected to, which superusers may exceed. The session that asks ends.
FREE_IN_DATABASE = f"""
SELECT CASE WHEN datconnlimit >= 0 AND NOT (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = session_user)
            THEN greatest(0, datconnlimit - (SELECT count(*) FROM pg_catalog.pg_stat_get_activity(NULL)
                                             WHERE datid = d.oid AND usesysid IS NOT NULL AND {_HAS_A_PLACE}
                                               AND pid <> pg_catalog.pg_backend_pid()))::int END AS count
FROM pg_catalog.pg_database d WHERE datname = pg_catalog.current_database()"""  # noqa: S608 - made of constants
# Null if sessions are hidden from this role.
ACTIVE_SESSIONS = """
SELECT CASE WHEN count(*) FILTER (WHERE query = '<insufficient privilege>') = 0
            THEN count(*) FILTER (WHERE backend_type = 'client backend' AND state = 'active') END AS count
FROM pg_catalog.pg_stat_get_activity(NULL) WHERE pid <> pg_backend_pid()"""
# Databases that pgdyno made are not what the server is for.
_NOT_OWN = "datname !~ '^pgdyno_[0-9a-f]{32}'"
# Every role sees these sums. A study of pgdyno's own is told by its session's name.
TRANSACTIONS = f"""
SELECT coalesce(sum(xact_commit + xact_rollback), 0)::int8 AS count FROM pg_catalog.pg_stat_database
WHERE {_NOT_OWN}"""  # noqa: S608 - made of constants
# Every transaction holds the lock on its own number, which counts up in each session.
VIRTUAL_TRANSACTIONS = f"""
SELECT split_part(l.virtualtransaction, '/', 1) AS session, split_part(l.virtualtransaction, '/', 2)::int8 AS number
FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_get_activity(NULL) a ON a.pid = l.pid
JOIN pg_catalog.pg_database d ON d.oid = a.datid
WHERE l.locktype = 'virtualxid' AND l.pid <> pg_catalog.pg_backend_pid() AND d.{_NOT_OWN}"""  # noqa: S608 - made of constants
SERVICE_MARKS = """
SELECT ARRAY(SELECT DISTINCT split_part(name, '.', 1) FROM pg_catalog.pg_settings WHERE name LIKE '%%.%%') AS prefixes,
       ARRAY(SELECT DISTINCT proname::text FROM pg_catalog.pg_proc WHERE proname = ANY(%s)) AS functions"""
SETTING = "SELECT pg_catalog.current_setting(%s, true) AS value"
# What a server keeps of a password: whoever has it can check the password, and does not know it.
SCRAM_VERIFIER = "SELECT rolpassword AS verifier FROM pg_catalog.pg_authid WHERE rolname = %s"
ARCHIVING = "SELECT (current_setting('archive_mode') <> 'off')::int AS count"
REPLICAS = """
SELECT ((SELECT count(*) FROM pg_catalog.pg_replication_slots s
         WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_stat_replication r WHERE r.pid = s.active_pid))
      + (SELECT count(*) FROM pg_catalog.pg_stat_replication))::int AS count"""
# A slot that keeps WAL from now on, not from the standby's first connection on.
CREATE_SLOT = "SELECT pg_catalog.pg_create_physical_replication_slot(%s, true)"
# The server has removed WAL that the slot was to keep.
SLOT_STATE = "SELECT coalesce(max(wal_status), '') AS state FROM pg_catalog.pg_replication_slots WHERE slot_name = %s"
STREAMS = "SELECT application_name AS name FROM pg_catalog.pg_stat_replication WHERE state = 'streaming'"
RECOVERY_PIDS = """
SELECT backend_type, pid FROM pg_catalog.pg_stat_activity WHERE backend_type IN ('startup', 'walreceiver')"""
PROMOTE = "SELECT pg_catalog.pg_promote(wait => false)"
# What a standby has of its primary's WAL on disk, and what it has replayed of that.
STANDBY_WAL = """
SELECT (pg_catalog.pg_last_wal_receive_lsn() - '0/0')::int8 AS received_bytes,
       (pg_catalog.pg_last_wal_replay_lsn() - '0/0')::int8 AS replayed_bytes"""
# A name of the database that must have arrived: a copy of the server has its WAL up to some instant, too.
REPLICA_STATE = """
SELECT pg_catalog.pg_is_in_recovery() AS is_in_recovery,
       (pg_catalog.pg_last_wal_replay_lsn() - '0/0')::int8 AS replayed_bytes,
       CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_is_wal_replay_paused() ELSE false END AS is_paused,
       EXISTS (SELECT FROM pg_catalog.pg_database WHERE datname = %s) AS has_database"""
FLUSHED_WAL = "SELECT (pg_catalog.pg_current_wal_flush_lsn() - '0/0')::int8 AS count"
IN_RECOVERY = "SELECT pg_catalog.pg_is_in_recovery()::int AS count"
# Rows that a prober was told are committed must be found after a failover.
CREATE_PROBES = "CREATE TABLE public.pgdyno_probe (number int8 NOT NULL)"
PROBE = "INSERT INTO public.pgdyno_probe VALUES (%d)"
PROBES = "SELECT number FROM public.pgdyno_probe ORDER BY number"
HISTORY = "SELECT count(*) AS count FROM public.pgbench_history"
SYSTEM_IDENTIFIER = "SELECT system_identifier AS count FROM pg_catalog.pg_control_system()"
# Of the settings that this role sees; has_parameter_privilege() knows also those that GRANT never named.
GIVEN_SETTINGS = """
SELECT name, setting, source NOT IN ('default', 'override', 'client', 'session', 'environment variable') AS is_set,
       pending_restart AS is_waiting, coalesce(enumvals, '{}') AS words,
       context <> 'internal' AND pg_catalog.has_parameter_privilege(name, 'ALTER SYSTEM') AS may_alter
FROM pg_catalog.pg_settings"""
DATA_BYTES = f"""
SELECT coalesce(sum(pg_catalog.pg_database_size(oid)), 0)::int8 AS bytes FROM pg_catalog.pg_database
WHERE NOT datistemplate AND pg_catalog.has_database_privilege(oid, 'CONNECT') AND {_NOT_OWN}"""  # noqa: S608 - made of constants
# The name of a session is shown to every role.
NAMED_SESSIONS = "SELECT count(*)::int AS count FROM pg_catalog.pg_stat_get_activity(NULL) WHERE application_name = %s"
# The server shows where a session comes from only to roles that may see it, such as its own: else, and of a socket, it is empty.
NAMED_CLIENTS = """
SELECT coalesce(pg_catalog.host(client_addr), '') AS client FROM pg_catalog.pg_stat_get_activity(NULL)
WHERE application_name = %s"""
NAME_SESSION = "SELECT pg_catalog.set_config('application_name', %s, false), pg_catalog.set_config('idle_session_timeout', '0', false)"
# A process id is given again, but not with the same time; a pooler gives a session to others, but not with its name.
SESSION_MARK = """
SELECT pid, extract(epoch FROM backend_start)::text AS began
FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid())"""
END_SESSION = """
SELECT pg_catalog.pg_terminate_backend(pid, 10000) FROM pg_catalog.pg_stat_get_activity(NULL)
WHERE pid = %s AND extract(epoch FROM backend_start)::text = %s AND application_name = %s AND pid <> pg_catalog.pg_backend_pid()"""
# As it is in all sessions, whatever TimeZone and DateStyle of role and database are.
_STARTED_AT = (
    "pg_catalog.to_char(pg_catalog.pg_postmaster_start_time() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US \"UTC\"')"
)
START_TIME = f"SELECT {_STARTED_AT} AS started_at"
SOURCES = "SELECT lower(name) AS name, source FROM pg_catalog.pg_settings WHERE lower(name) = ANY(%s)"
# `backend` settings can be asked for when a session begins.
POSITIVE_SETTINGS = """
SELECT name FROM pg_catalog.pg_settings WHERE name = ANY (%s) AND setting <> '0' ORDER BY name"""
WITHHELD_SETTINGS = """
SELECT lower(name) AS name FROM pg_catalog.pg_settings
WHERE context = 'sighup' OR context = 'superuser' AND NOT pg_catalog.has_parameter_privilege(name, 'SET')"""
# The value is that of a session, which its role or database may have set.
SERVER_SETTINGS = """
SELECT lower(name) AS name, context, source, pg_catalog.current_setting(name) AS value, setting, unit, vartype,
       pending_restart AS is_waiting,
       pg_catalog.quote_ident(current_user) AS role,
       pg_catalog.has_parameter_privilege(name, 'ALTER SYSTEM') AS is_alterable,
       coalesce(pg_catalog.current_setting('allow_alter_system', true), 'on')::bool AS is_allowed
FROM pg_catalog.pg_settings WHERE lower(name) = ANY(%s)"""
# If a name occurs twice, the last line counts.
AUTO_CONF = """
SELECT lower(name) AS name, setting AS text FROM pg_catalog.pg_file_settings
WHERE sourcefile LIKE '%%/postgresql.auto.conf' AND lower(name) = ANY(%s) ORDER BY seqno"""
BACKEND_PID = "SELECT pg_catalog.pg_backend_pid() AS pid"
CONNECTION_ENDS = """
SELECT pg_catalog.pg_backend_pid() AS pid,
       pg_catalog.host(pg_catalog.inet_client_addr()) AS client_host, pg_catalog.inet_client_port() AS client_port,
       pg_catalog.host(pg_catalog.inet_server_addr()) AS server_host, pg_catalog.inet_server_port() AS server_port"""

# Nothing is executed, and what planning evaluates may write nothing.
PLAN_CAREFULLY = "SET TRANSACTION READ ONLY; SET LOCAL statement_timeout = '5s'"
EXPLAIN = "EXPLAIN (FORMAT JSON, SETTINGS)"
PREPARED = "pgdyno_plan"
FORCE_GENERIC = "SET LOCAL plan_cache_mode = force_generic_plan"

WAL_POSITION = "SELECT (pg_current_wal_insert_lsn() - '0/0')::int8 AS wal_bytes"

CHECKPOINT = "CHECKPOINT"
SHARED_BUFFERS = "SELECT pg_catalog.pg_size_bytes(pg_catalog.current_setting('shared_buffers')) AS bytes"
CREATE_DATABASE = "CREATE DATABASE {name}"

# A function in the session's temporary schema needs no extension in the database and is gone with the session.
# Source: PostgreSQL contrib/pg_prewarm/pg_prewarm--1.1.sql.
CREATE_PREWARM = """
CREATE OR REPLACE FUNCTION pg_temp.prewarm(regclass, mode text, fork text, first_block int8, last_block int8)
RETURNS int8 AS '$libdir/pg_prewarm', 'pg_prewarm' LANGUAGE C"""
PREWARM = "SELECT pg_temp.prewarm(%s::regclass, 'buffer', 'main', NULL, NULL) AS pages"

# Sequential scans of large tables go through a ring of 32 buffers and would leave shared_buffers cold; a scan of the
# primary key with whole rows does not. Source: PostgreSQL src/backend/access/heap/heapam.c, initscan().
FORCE_INDEX_SCANS = "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off"
PRIMARY_KEYS = """
SELECT i.indrelid::regclass::text AS relation, a.attname AS column
FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE i.indisprimary AND c.relkind = 'r' AND c.relpersistence <> 't'
      AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast', 'pgdyno') ORDER BY 1"""
SCAN_BY_KEY = "SELECT count(row) FROM (SELECT r AS row FROM {relation} r ORDER BY {column}) AS ordered"


class LoadedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The time at which a session last read the configuration files, and the values it then has."""

    loaded_at: str
    shown: tuple[str, ...]


class ReplicaState(msgspec.Struct, frozen=True, kw_only=True):
    """What a standby says of its replay."""

    is_in_recovery: bool
    """False of a standby that was promoted."""
    replayed_bytes: int | None
    """Up to which byte of the WAL."""
    is_paused: bool
    has_database: bool


class Warming(msgspec.Struct, frozen=True, kw_only=True):
    """The way in which shared_buffers was filled; `pages` is None if that way does not count them."""

    method: str
    pages: int | None


OWN_SESSION = """
    SELECT pg_catalog.pg_backend_pid() AS pid, pg_catalog.inet_client_port() AS port,
           (SELECT setting FROM pg_catalog.pg_settings WHERE name = 'data_directory') AS data_directory
"""


def connect(
    address: Address, *, application_name: str = "pgdyno", options: str = "", patience_s: int | None = None
) -> Connection:
    """Connect in autocommit mode, with rows as dicts.

    Args:
        address: The server and database.
        application_name: The name that the server shows for the connection.
        options: Options as in PGOPTIONS.
        patience_s: The limit for an answer; None: `timeouts.CONNECT_PATIENCE_S`.

    Raises:
        NoAnswerError: The server does not answer within the limit.
        NoConnectionError: The server refuses the connection.
    """
    patience_s = patience_s or timeouts.CONNECT_PATIENCE_S
    try:
        with _ignored_environment():
            return psycopg.Connection.connect(
                address.conninfo(),
                application_name=application_name,
                # Of a database in SQL_ASCII, texts would come as bytes.
                client_encoding="UTF8",
                options=f"{address.parameters.get('options', '')} {options}".strip(),
                connect_timeout=patience_s,
                autocommit=True,
                row_factory=dict_row,
            )
    except psycopg.errors.ConnectionTimeout as exc:
        raise NoAnswerError(f"no answer to a new connection within {patience_s} s") from exc
    except psycopg.Error as exc:
        raise no_connection(exc) from exc


class _Hidden:
    """What is hidden of the environment, and for how many connections that are being made, by all threads."""

    lock = threading.Lock()
    variables: ClassVar[dict[str, str]] = {}
    count = 0


@contextlib.contextmanager
def _ignored_environment() -> Iterator[None]:
    """Hide PG* variables for the length of a `with` block: an address says all that counts, and children ignore them, too."""
    with _Hidden.lock:
        _Hidden.count += 1
        _Hidden.variables |= {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("PG")}
    try:
        yield
    finally:
        with _Hidden.lock:
            _Hidden.count -= 1
            if _Hidden.count == 0:
                os.environ.update(_Hidden.variables)
                _Hidden.variables = {}


def find_counters(connection: Connection, version_num: int) -> ServerCounters:
    """Find the server's counters: of a version that pgdyno was not tried with, those that its own catalogue confirms.

    Raises:
        HostError: The version is older than all that pgdyno knows.
        StepFailedError: The server refuses a query.
    """
    facts = server_counters(version_num // 10_000)
    return confirm_by_catalogue(connection, facts) if is_untried(facts.version_major) else facts


def confirm_by_catalogue(connection: Connection, facts: ServerCounters) -> ServerCounters:
    """Keep the counters that the server's own catalogue confirms; the others are absent.

    Raises:
        StepFailedError: The server refuses a query.
    """
    rows = _rows(connection, VIEW_COLUMNS, (list(views_read(facts)),))
    columns = {row["view"]: frozenset(row["columns"]) for row in rows}
    objects = _rows(connection, IO_OBJECTS) if "object" in columns.get(IO_VIEW, ()) else []
    functions = _rows(connection, FUNCTIONS, (list(functions_read(facts)),))
    catalogue = ServerCatalogue(
        columns=columns,
        functions=frozenset(row["name"] for row in functions),
        io_objects=frozenset(row["object"] for row in objects),
    )
    return confirm_counters(facts, catalogue)


def find_gaps(connection: Connection) -> tuple[Gap, ...]:
    """Find what should be counted and observed, and cannot be: what a version lacks, and what this role may not read."""
    from pgdyno.record.types import LOST_COUNTERS, Gap  # noqa: PLC0415 - see above

    facts = find_counters(connection, connection.info.server_version)
    lost = describe_lost(server_counters(facts.version_major), facts)
    refused = find_refused(connection, facts)
    return (
        *((Gap(source=LOST_COUNTERS, reason=lost),) if lost else ()),
        *(Gap(source=place, reason=words) for place, words in refused.items()),
    )


def find_refused(connection: Connection, facts: ServerCounters) -> dict[str, str]:
    """Find the views and functions of counters that the server refuses to this role, with its words.

    Raises:
        StepFailedError: The connection was lost.
    """
    queries = (counters_query(facts).replace("%s", "''"), io_query(facts))
    # Nearly always nothing is refused, which two statements show.
    if not any(_find_refusal(connection, query) for query in queries if query is not None):
        return {}
    from pgdyno.facts.privileges import probe_counters  # noqa: PLC0415 - a catalogue that is rarely needed

    found = {probe.name: _find_refusal(connection, probe.sql) for probe in probe_counters(facts)}
    return {place: words for place, words in found.items() if words is not None}


def _find_refusal(connection: Connection, query: str) -> str | None:
    """Return the server's words for refusing a query that only reads; None if it answers. To be called outside of transactions."""
    try:
        _rows(connection, query)
    except StepFailedError as error:
        if connection.broken:
            raise
        return error.detail.partition("\n")[0]
    return None


def counters_query(facts: ServerCounters) -> str:
    """Build the query for one row with every direct counter by canonical name.

    Its one parameter is the watched database.
    """
    views = {c.source.view for c in facts.direct if isinstance(c.source, FromColumn)}
    # There is a row as long as the database is there, also where nothing of pg_stat_database can be read.
    named = "pg_stat_database" if "pg_stat_database" in views else "pg_database"
    columns = ", ".join(map(_counter_sql, facts.direct))
    return f"SELECT {columns} FROM {' CROSS JOIN '.join(sorted({named, *views}))} WHERE {named}.datname = %s"  # noqa: S608 - facts only


def io_query(facts: ServerCounters) -> str | None:
    """Build the query for the active rows of pg_stat_io, by canonical names; None if the version has no such view."""
    if not facts.io:
        return None
    happened = " OR ".join(f"{_io_sql(c)} > 0" for c in facts.io if c.unit in {Unit.COUNT, Unit.PAGES})
    columns = ", ".join(f"({_io_sql(c)})::{_sql_type(c.unit)} AS {c.name}" for c in facts.io)
    return f"SELECT {', '.join(IO_DIMENSIONS)}, {columns} FROM pg_stat_io WHERE {happened}"  # noqa: S608 - facts only


def standbys_query(version_major: int) -> str:
    """Build the query for the standbys that stream from the server, with their lags by canonical names."""
    columns = ", ".join(f"({c.source.sql})::{_sql_type(c.unit)} AS {c.name}" for c in standby_columns(version_major))
    return f"SELECT application_name AS name, state, sync_state, {columns} FROM pg_stat_replication"  # noqa: S608 - facts only


def read_standbys(connection: Connection, version_major: int) -> list[dict[str, Any]]:
    """Read the standbys that stream from the server, with their lags by canonical names."""
    return _rows(connection, standbys_query(version_major))


def add_counts(values: Iterable[float | None]) -> float | None:
    """Return the sum of what several servers count of one kind; None if none of them does."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def read_counters(connection: Connection, *, watched_database: str) -> Values:
    """Read every cumulative counter by canonical name; None for what this version or its settings do not count.

    Raises:
        StepFailedError: A query failed, or there is no such database.
    """
    state = _one(connection, SERVER_STATE)
    facts = find_counters(connection, state["version_num"])
    try:
        direct, io_rows = _read_rows(connection, facts, watched_database)
    except StepFailedError:
        if connection.broken or not (refused := find_refused(connection, facts)):
            raise
        facts = without_refused(facts, refused)
        direct, io_rows = _read_rows(connection, facts, watched_database)
    off = {name for name in TIMING_SETTINGS if not state[name]}
    values: Values = {}
    for counter in facts.counters:
        if counter.needs in off:
            values[counter.name] = None
        elif isinstance(counter.source, FromIo):
            values[counter.name] = _sum_io(io_rows, counter.source)
        else:
            values[counter.name] = direct.get(counter.name)
    return values


def _read_rows(
    connection: Connection, facts: ServerCounters, database: str
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    query = io_query(facts)
    direct = _one(connection, counters_query(facts), (database,))
    return direct, _rows(connection, query) if query else []


def server_look_query(names: Sequence[str]) -> str:
    """Build the psql query for a running server that pgdyno did not create."""
    return SERVER_LOOK.format(names=", ".join(f"'{name}'" for name in names), slots=SLOTS)


def named_server_query(names: Sequence[str]) -> str:
    """Build the psql query for a server before and after it is changed, with settings by name in lower case.

    Args:
        names: Names that hold only letters, digits, dots, `_` and `$`.
    """
    return NAMED_SERVER.format(names=", ".join(f"'{name}'" for name in names))


def carefully(connection: Connection) -> AbstractContextManager[None]:
    """Run a `with` block in a transaction with pg_catalog's functions only, and no statement that takes longer than 5 s.

    Raises:
        StepFailedError: The server refuses the settings.
    """
    return _rolled_back(connection, BEGIN_CAREFULLY)


@contextlib.contextmanager
def _rolled_back(connection: Connection, settings: str) -> Iterator[None]:
    """Run a `with` block in a transaction that is rolled back, with these settings.

    Timeouts that the role has for transactions do not end it. The settings come with BEGIN, because a short timeout would
    else end it between the two wherever this machine or the network is slow.
    """
    is_known = connection.info.server_version >= _HAS_TRANSACTION_TIMEOUT
    words = ("BEGIN", WAIT_WITHIN, *((NO_TRANSACTION_TIMEOUT,) if is_known else ()), settings)
    _execute(connection, "; ".join(words))
    try:
        yield
    except BaseException:
        # The first error says more than that a lost connection cannot roll back.
        with contextlib.suppress(psycopg.Error):
            connection.execute("ROLLBACK")
        raise
    connection.execute("ROLLBACK")


def read_given_server(connection: Connection) -> dict[str, Any]:
    """Read what a server is to the role that is connected: the columns of GIVEN_SERVER."""
    return _one(connection, GIVEN_SERVER)


def read_given_settings(connection: Connection) -> list[dict[str, Any]]:
    """Read the settings that the connected role sees: the columns of GIVEN_SETTINGS."""
    return _rows(connection, GIVEN_SETTINGS)


def read_data_bytes(connection: Connection) -> int:
    """Read the size of the databases that the connected role may connect to."""
    return int(_one(connection, DATA_BYTES)["bytes"])


def read_slots(connection: Connection) -> list[dict[str, Any]]:
    """Read the replication slots for which the server keeps WAL: name, whether something is connected, whether logical, bytes behind."""
    return _rows(connection, SLOTS)


def read_tls(connection: Connection) -> str | None:
    """Read protocol and cipher of the server's end of a connection; None without TLS there."""
    tls: str | None = _one(connection, TLS)["tls"]
    return tls


def has_gss_encryption(connection: Connection) -> bool:
    """Return whether a connection is encrypted by GSSAPI, which takes the place of TLS."""
    return bool(_one(connection, GSS_ENCRYPTION, (connection.info.backend_pid,))["count"])


def count_free_connections(connection: Connection) -> int:
    """Count the connections that the connected role may still open."""
    return int(_one(connection, FREE_CONNECTIONS)["count"])


def count_free_in_database(connection: Connection) -> int | None:
    """Count how many more connections this database takes; None if it has no limit of its own for this role."""
    count: int | None = _one(connection, FREE_IN_DATABASE)["count"]
    return count


def count_active_sessions(connection: Connection) -> int | None:
    """Count the sessions of others that run a statement now; None if they are hidden from this role."""
    count: int | None = _one(connection, ACTIVE_SESSIONS)["count"]
    return count


def count_transactions(connection: Connection) -> int:
    """Count the transactions that have ended in all databases, without those that pgdyno made."""
    return int(_one(connection, TRANSACTIONS)["count"])


def list_virtual_transactions(connection: Connection) -> list[tuple[str, int]]:
    """List the transactions that others are in now: a name of the session, and the number that counts its transactions."""
    return [(row["session"], row["number"]) for row in _rows(connection, VIRTUAL_TRANSACTIONS)]


def read_service_marks(connection: Connection, functions: Sequence[str]) -> dict[str, Any]:
    """Read by what a managed service is recognised: `prefixes` of settings, and which of these `functions` there are."""
    return _one(connection, SERVICE_MARKS, (list(functions),))


def read_setting(connection: Connection, name: str) -> str | None:
    """Read a setting of this session; None if there is none of that name."""
    value: str | None = _one(connection, SETTING, (name,))["value"]
    return value


def read_scram_verifier(connection: Connection, role: str) -> str:
    """Read what the server keeps of a role's password, which takes a superuser."""
    return str(_one(connection, SCRAM_VERIFIER, (role,))["verifier"])


def is_archiving(connection: Connection) -> int:
    """Return 1 if the server keeps its WAL elsewhere, else 0."""
    return int(_one(connection, ARCHIVING)["count"])


def count_replicas(connection: Connection) -> int:
    """Count the processes that send WAL to somebody, and the replication slots that none of them uses."""
    return int(_one(connection, REPLICAS)["count"])


def create_slot(connection: Connection, name: str) -> None:
    """Make a physical replication slot, for which the server keeps WAL from now on."""
    _execute(connection, CREATE_SLOT, (name,))


def is_slot_lost(connection: Connection, name: str) -> bool:
    """Return whether a replication slot has lost WAL, so that its standby cannot catch up."""
    return bool(_one(connection, SLOT_STATE, (name,))["state"] == "lost")


def list_streams(connection: Connection) -> frozenset[str]:
    """List the names of the standbys that stream from the server and have caught up once."""
    return frozenset(row["name"] for row in _rows(connection, STREAMS))


def read_recovery_pids(connection: Connection) -> dict[str, int]:
    """Read the process ids of a standby's `startup`, which replays WAL, and `walreceiver`, which writes and flushes it."""
    return {row["backend_type"]: row["pid"] for row in _rows(connection, RECOVERY_PIDS)}


def promote(connection: Connection) -> None:
    """Ask a standby to become a primary, and do not wait for that.

    Raises:
        StepFailedError: It is no standby, or the signal was not sent.
    """
    _execute(connection, PROMOTE)


def read_standby_wal(connection: Connection) -> tuple[int, int]:
    """Read up to which byte of the WAL a standby has flushed it, and up to which it has replayed it."""
    row = _one(connection, STANDBY_WAL)
    return row["received_bytes"] or 0, row["replayed_bytes"] or 0


def read_replica_state(connection: Connection, database: str) -> ReplicaState:
    """Read how far a standby of a given server has replayed its WAL, and whether it has a database by then."""
    return msgspec.convert(_one(connection, REPLICA_STATE, (database,)), ReplicaState)


def read_flushed_wal(connection: Connection) -> int:
    """Read up to which byte of its WAL a primary has flushed it."""
    return int(_one(connection, FLUSHED_WAL)["count"])


def is_in_recovery(connection: Connection) -> bool:
    """Return whether a server is a standby."""
    return bool(_one(connection, IN_RECOVERY)["count"])


def create_probes(connection: Connection) -> None:
    """Make the table of the prober's rows."""
    _execute(connection, CREATE_PROBES)


def read_probes(connection: Connection) -> list[int]:
    """Read the numbers of the prober's rows that are there."""
    return [row["number"] for row in _rows(connection, PROBES)]


def count_history(connection: Connection) -> int:
    """Count the rows of pgbench_history, one for each transaction of tpcb-like and simple-update."""
    return int(_one(connection, HISTORY)["count"])


def read_system_identifier(connection: Connection) -> int:
    """Read what tells the server's data from those of all other servers."""
    return int(_one(connection, SYSTEM_IDENTIFIER)["count"])


def name_session(connection: Connection, name: str) -> None:
    """Give a session a name that others see, and let it be idle."""
    _execute(connection, NAME_SESSION, (name,))


def count_named_sessions(connection: Connection, name: str) -> int:
    """Count the sessions of that name, of all roles and databases."""
    return int(_one(connection, NAMED_SESSIONS, (name,))["count"])


def list_named_clients(connection: Connection, name: str) -> tuple[str, ...]:
    """List the IP addresses that the sessions of a name come from; empty for a socket, or where this role may not know it."""
    return tuple(row["client"] for row in _rows(connection, NAMED_CLIENTS, (name,)))


def mark_session(connection: Connection) -> tuple[int, str]:
    """Read what tells a session from all others of the server, also from later ones."""
    row = _one(connection, SESSION_MARK)
    return row["pid"], row["began"]


def end_named_session(connection: Connection, name: str, mark: tuple[int, str]) -> None:
    """End another session of this role by its name and mark, if it is still there, and wait for that for up to 10 s."""
    _execute(connection, END_SESSION, (*mark, name))


def ping(connection: Connection) -> None:
    """Make sure that the server still answers a session.

    Raises:
        StepFailedError: It does not.
    """
    _execute(connection, "SELECT")


def read_start_time(connection: Connection) -> str:
    """Read when the server was started."""
    return str(_one(connection, START_TIME)["started_at"])


def format_start_check(started_at: str, otherwise: str) -> str:
    """Return a script for pgbench that fails in a server that started at another time, with an error that has the word `otherwise`."""
    return f"SELECT (CASE WHEN {_STARTED_AT} = '{started_at}' THEN '1' ELSE '{otherwise}' END)::int;\n"


def read_sources(connection: Connection, names: Sequence[str]) -> dict[str, str]:
    """Read where the values of settings come from, by their names in lower case."""
    rows = _rows(connection, SOURCES, ([name.lower() for name in names],))
    return {row["name"]: row["source"] for row in rows}


def find_positive(connection: Connection, names: Sequence[str]) -> tuple[str, ...]:
    """Find the settings that are above 0 in this session, of those that the server has."""
    return tuple(row["name"] for row in _rows(connection, POSITIVE_SETTINGS, (list(names),)))


def read_withheld_settings(connection: Connection) -> frozenset[str]:
    """Read which settings a reload changes and a session of this role may not choose, by their names in lower case."""
    return frozenset(row["name"] for row in _rows(connection, WITHHELD_SETTINGS))


def read_server_settings(connection: Connection, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Read what a server says of its settings, the columns of SERVER_SETTINGS, by their names in lower case."""
    return {row["name"]: row for row in _rows(connection, SERVER_SETTINGS, (list(names),))}


def read_auto_conf(connection: Connection, names: Sequence[str]) -> dict[str, str]:
    """Read what postgresql.auto.conf has of settings, loaded or not, by their names in lower case."""
    return {row["name"]: row["text"] for row in _rows(connection, AUTO_CONF, (list(names),))}


def alter_system(connection: Connection, name: str, text: str | None) -> None:
    """Set a setting in postgresql.auto.conf, or take it out of there: None. A reload puts it in force."""
    words = compose.SQL("ALTER SYSTEM RESET {name}" if text is None else "ALTER SYSTEM SET {name} = {text}")
    _execute(connection, words.format(name=compose.Identifier(*name.split(".")), text=compose.Literal(text or "")))


def read_own_session(connection: Connection) -> dict[str, Any]:
    """Read by what a machine knows the process of this session: its `pid`, and the `port` of its client, NULL for a socket.

    `data_directory` is NULL where the role may not know it.
    """
    return _one(connection, OWN_SESSION)


def read_backend_pid(connection: Connection) -> int:
    """Read the id of the server's process that serves this session now."""
    return int(_one(connection, BACKEND_PID)["pid"])


class ConnectionEnds(msgspec.Struct, frozen=True, kw_only=True):
    """Both ends of a connection as the server sees them; by a Unix socket only `pid` is known."""

    pid: int
    """Of the server's process."""
    client_host: str | None
    client_port: int | None
    server_host: str | None
    server_port: int | None


def read_connection_ends(connection: Connection) -> ConnectionEnds:
    """Read the ends of the connection that this session of the server has now."""
    return msgspec.convert(_one(connection, CONNECTION_ENDS), ConnectionEnds)


def read_settings(connection: Connection) -> tuple[SettingFact, ...]:
    """Read the server's settings that differ from the built-in values, by name."""
    from pgdyno.record.types import SettingFact  # noqa: PLC0415 - see above
    from pgdyno.spec.table import ARCHIVE_SETTINGS, NOT_RECORDED, SECRET_SETTINGS  # noqa: PLC0415 - see above

    hidden = ([*SECRET_SETTINGS, *ARCHIVE_SETTINGS], NOT_RECORDED)
    return tuple(msgspec.convert(row, SettingFact) for row in _rows(connection, SETTINGS_NOT_DEFAULT, hidden))


def find_unapplied_settings(connection: Connection, names: list[str]) -> tuple[str, ...]:
    """Return which of these settings are in the configuration files but not in force, with the reason."""
    rows = _rows(connection, UNAPPLIED_SETTINGS, ([name.lower() for name in names],))
    return tuple(f"{row['name']}: {row['reason']}" for row in rows)


def reload_settings(connection: Connection) -> None:
    """Tell all processes of the server to read its configuration files, without waiting for them."""
    _execute(connection, RELOAD)


def read_loaded(connection: Connection, names: Sequence[str]) -> LoadedSettings:
    """Read the values in force in this session, in the order of the names; empty for unknown ones."""
    return msgspec.convert(_one(connection, LOADED_SETTINGS, (list(names),)), LoadedSettings)


def read_wal_bytes(connection: Connection) -> int:
    """Read the bytes of WAL written since the cluster was created, up to this moment."""
    return int(_one(connection, WAL_POSITION)["wal_bytes"])


def read_dataset(connection: Connection) -> tuple[RelationFact, ...]:
    """Read the facts of the tables in the connected database but pgdyno's own, each followed by its indexes."""
    from pgdyno.record.types import RelationFact  # noqa: PLC0415 - see above

    return tuple(msgspec.convert(row, RelationFact) for row in _rows(connection, DATASET))


def read_table_states(connection: Connection) -> tuple[TableState, ...]:
    """Read the present state of the connected database's tables."""
    from pgdyno.record.types import TableState  # noqa: PLC0415 - see above

    return tuple(msgspec.convert(row, TableState) for row in _rows(connection, TABLE_STATES))


def create_statements_extension(connection: Connection) -> None:
    """Make pg_stat_statements readable in the connected database, of a cluster of pgdyno's own."""
    _execute(connection, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements")


def read_statements(connection: Connection, *, watched_database: str) -> StatementsLook | None:
    """Read what pg_stat_statements counts of the connected role's statements in a database.

    Returns:
        None if the connected database does not have the extension.

    Raises:
        StepFailedError: The library is not loaded, or the role may not read the view.
    """
    from pgdyno.record.statements import StatementsLook, read_statement  # noqa: PLC0415 - see above

    with carefully(connection):
        found = _rows(connection, STATEMENTS_SCHEMA)
        if not found:
            return None
        schema = compose.Identifier(found[0]["schema"])
        (about,) = _execute(connection, compose.SQL(STATEMENTS_INFO).format(schema=schema)).fetchall()
        rows = _execute(
            connection, compose.SQL(STATEMENTS).format(schema=schema, load_role=LOAD_ROLE), (watched_database,)
        ).fetchall()
    has_time = {"has_plan_time": about["has_plan_time"], "has_io_time": about["has_io_time"]}
    return StatementsLook(
        statements=tuple(read_statement(row["statement"], **has_time) for row in rows),
        evicted_count=about["evicted_count"],
        reset_at=about["reset_at"],
    )


@contextlib.contextmanager
def planning(connection: Connection) -> Iterator[None]:
    """Let a `with` block plan statements, in a transaction that may write nothing and is rolled back.

    Raises:
        StepFailedError: The server broke off the session.
    """
    try:
        with _rolled_back(connection, PLAN_CAREFULLY):
            yield
    except psycopg.Error as exc:
        raise StepFailedError("the server broke off a session", detail=str(exc).strip(), hint=HINT_LOST) from exc


def explain(connection: Connection, statement: str) -> dict[str, Any]:
    """Plan a statement as in simple mode; within `planning`.

    Raises:
        StepFailedError: The server refuses.
    """
    with connection.transaction():
        return _explain(connection, statement)


def explain_prepared(
    connection: Connection, statement: str, executions: Sequence[Sequence[str | None]], *, is_generic: bool
) -> dict[str, Any]:
    """Plan a statement with parameters as often as it would be executed, and return the last plan; within `planning`.

    Args:
        connection: The session, whose plan_cache_mode counts.
        statement: With $1 and so on.
        executions: The values of each, at least one.
        is_generic: Whether to plan for no values, whatever the session's plan_cache_mode says.

    Raises:
        StepFailedError: The server refuses.
    """
    with connection.transaction():
        _execute(connection, f"PREPARE {PREPARED} AS {statement}", is_one=True)
    try:
        with connection.transaction(force_rollback=True):
            if is_generic:
                _execute(connection, FORCE_GENERIC, is_one=True)
            for values in executions:
                listed = ", ".join(compose.Literal(value).as_string(connection) for value in values)
                plan = _explain(connection, f"EXECUTE {PREPARED}" + (f" ({listed})" if values else ""))
    finally:
        if not connection.broken:
            _execute(connection, f"DEALLOCATE {PREPARED}", is_one=True)
    return plan


def _explain(connection: Connection, statement: str) -> dict[str, Any]:
    (row,) = _execute(connection, f"{EXPLAIN} {statement}", is_one=True).fetchall()
    (plan,) = row["QUERY PLAN"]
    return dict(plan)


def create_database(connection: Connection, name: str) -> None:
    """Create an empty database; not inside a transaction."""
    _execute(connection, compose.SQL(CREATE_DATABASE).format(name=compose.Identifier(name)))


def read_shared_buffers(connection: Connection) -> int:
    """Read the bytes of shared_buffers."""
    return int(_one(connection, SHARED_BUFFERS)["bytes"])


def checkpoint(connection: Connection) -> None:
    """Write everything dirty to disk now; a large shared_buffers on a slow disk takes hours."""
    patience_s = _CHECKPOINT_PATIENCE_S + read_shared_buffers(connection) / timeouts.SLOW_DISK_BYTES_PER_S
    _execute(connection, CHECKPOINT, patience_s=patience_s)


def warm_dataset(connection: Connection) -> Warming:
    """Read the tables, then their indexes, into shared_buffers; indexes last because each access needs them."""
    # A standby makes no functions, and an error in its log would pass for the reason why a trial failed.
    if is_in_recovery(connection):
        return _warm_by_index_scans(connection)
    try:
        with timeouts.limit(connection):
            connection.execute(CREATE_PREWARM)
    except (
        psycopg.errors.UndefinedFile,
        psycopg.errors.InsufficientPrivilege,
        # A role's sessions may be read-only.
        psycopg.errors.ReadOnlySqlTransaction,
    ):
        return _warm_by_index_scans(connection)
    except psycopg.Error as exc:
        raise StepFailedError("cannot make the function that warms the cache", detail=str(exc).strip()) from exc
    relations = sorted(read_dataset(connection), key=lambda relation: relation.kind == "index")
    pages = 0
    for relation in relations:
        if relation.kind in {"table", "index", "materialized view"}:
            rows = _execute(connection, PREWARM, (relation.name,), patience_s=_reading_patience_s(relation.bytes))
            pages += rows.fetchall()[0]["pages"]
    return Warming(method="pg_prewarm", pages=pages)


def _reading_patience_s(size_bytes: int) -> float:
    return timeouts.QUERY_PATIENCE_S + size_bytes / timeouts.SLOW_DISK_BYTES_PER_S


def _warm_by_index_scans(connection: Connection) -> Warming:
    sizes = {relation.name: relation.bytes for relation in read_dataset(connection)}
    with _rolled_back(connection, FORCE_INDEX_SCANS):
        for key in _rows(connection, PRIMARY_KEYS):
            relation = compose.SQL(key["relation"])
            scan = compose.SQL(SCAN_BY_KEY).format(relation=relation, column=compose.Identifier(key["column"]))
            _execute(connection, scan, patience_s=_reading_patience_s(sizes[key["relation"]]))
    return Warming(method="index scans", pages=None)


def _counter_sql(counter: Counter) -> str:
    source = counter.source
    if isinstance(source, FromColumn):
        expression = f"{source.view}.{source.column}"
    elif isinstance(source, FromFunction):
        # A standby writes no WAL of its own, and refuses to say where it would.
        expression = f"CASE WHEN NOT pg_is_in_recovery() THEN {source.call} END"
    elif isinstance(source, FromSum):
        expression = f"(SELECT sum({source.column}) FROM {source.view})"  # noqa: S608 - facts only
    else:
        raise TypeError(f"{counter.name} is not in a view of one row")
    return f"({expression})::{_sql_type(counter.unit)} AS {counter.name}"


def _io_sql(column: IoColumn) -> str:
    if not isinstance(column.source, FromIoColumn):
        raise TypeError(f"{column.name} is not in this version's pg_stat_io")
    return column.source.sql


def _sql_type(unit: Unit) -> str:
    return "float8" if unit is Unit.MS else "int8"


def _sum_io(rows: list[dict[str, Any]], source: FromIo) -> int | float:
    return sum(row[source.column] or 0 for row in rows if source.counts(row["object"], row["context"]))


def _one(connection: Connection, query: str, parameters: tuple[object, ...] = ()) -> dict[str, Any]:
    rows = _rows(connection, query, parameters)
    if len(rows) != 1:
        raise StepFailedError(f"a query gave {len(rows)} rows instead of one", detail=f"{query.strip()}\n{parameters}")
    return rows[0]


def _rows(connection: Connection, query: str, parameters: tuple[object, ...] = ()) -> list[dict[str, Any]]:
    return _execute(connection, query, parameters).fetchall()


def _execute(
    connection: Connection,
    query: str | compose.Composed,
    parameters: tuple[object, ...] = (),
    *,
    patience_s: float | None = None,
    is_one: bool = False,
) -> psycopg.Cursor[dict[str, Any]]:
    text: Any = query
    try:
        with timeouts.limit(connection, patience_s):
            # Binary results come by the extended protocol, which refuses several statements at once. What psycopg prepares by
            # itself, it deallocates with all else.
            return connection.execute(text, parameters or None, binary=is_one, prepare=False if is_one else None)
    except psycopg.Error as exc:
        kind, hint = (NoConnectionError, HINT_LOST) if connection.broken else (StepFailedError, "")
        # `as_string(connection)` fails on a lost connection.
        words = query if isinstance(query, str) else query.as_string(None)
        raise kind("the server refused a query", detail=f"{str(exc).strip()}\n{words}", hint=hint) from exc
