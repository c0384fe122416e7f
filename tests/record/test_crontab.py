from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pgdyno.record.machine.crontab import find_next, parse_crontab
from tests.rows import each_row

# A Thursday.
NOW = datetime(2024, 11, 21, 0, 47, 20, tzinfo=UTC)
WEEK_S = 7 * 86_400.0


@each_row(
    [
        ("* * * * *", datetime(2024, 11, 21, 0, 48, tzinfo=UTC)),
        ("*/15 * * * *", datetime(2024, 11, 21, 1, 0, tzinfo=UTC)),
        ("5/20 * * * *", datetime(2024, 11, 21, 1, 5, tzinfo=UTC)),
        ("10-20/5,47 3 * * *", datetime(2024, 11, 21, 3, 10, tzinfo=UTC)),
        ("0 6 * * mon-wed", datetime(2024, 11, 25, 6, 0, tzinfo=UTC)),
        ("0 6 * * 7", datetime(2024, 11, 24, 6, 0, tzinfo=UTC)),
        ("0 6 * NOV Sun", datetime(2024, 11, 24, 6, 0, tzinfo=UTC)),
        # Both fields of days are named: either will do.
        ("0 6 22 * sun", datetime(2024, 11, 22, 6, 0, tzinfo=UTC)),
        ("47 0 21 * *", None),
        ("0 6 1 1 *", None),
        ("@daily", datetime(2024, 11, 22, 0, 0, tzinfo=UTC)),
        ("@hourly", datetime(2024, 11, 21, 1, 0, tzinfo=UTC)),
        ("@Hourly\t", datetime(2024, 11, 21, 1, 0, tzinfo=UTC)),
    ]
)
def test_when_a_line_starts_next(fields: str, next_start: datetime | None) -> None:
    (line,) = parse_crontab(f"{fields} /usr/bin/job --all", has_user=False)
    due_s = find_next(line, now=NOW, within_s=WEEK_S - 7200)
    assert (None if due_s is None else NOW + timedelta(seconds=due_s)) == next_start
    (of_root,) = parse_crontab(f"{fields} root /usr/bin/job --all", has_user=True)
    assert of_root.fields == line.fields
    assert of_root.program == line.program == "job"


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("/opt/backup.sh --password=geheim", "backup.sh"),
        ("PGPASSWORD=geheim pg_dump -Fc shop", "pg_dump"),
        ("[ -x /usr/lib/php/sessionclean ] && /usr/lib/php/sessionclean", "sessionclean"),
        ("cd / && run-parts --report /etc/cron.hourly", "/etc/cron.hourly"),
        ("test -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.daily; }", "/etc/cron.daily"),
        ("command -v debian-sa1 > /dev/null && debian-sa1 1 1", "debian-sa1"),
        ("nice -n 19 ionice -c3 /usr/bin/pgbackrest backup", "pgbackrest"),
        ("nice -19 ionice -c 2 -n 7 pg_dump shop", "pg_dump"),
        ("flock -n -w 5 /run/lock/b /opt/backup.sh", "backup.sh"),
        ("/usr/bin/flock /run/lock/b -c 'cd /srv && nice /opt/backup.sh geheim'", "backup.sh"),
        ("sudo -nu postgres -- /usr/bin/vacuumdb --all", "vacuumdb"),
        ("sudo --user postgres bash -lc 'PGPASSWORD=\"geheim \" pg_dump shop'", "pg_dump"),
        ("su - postgres -c 'pg_dumpall > /b'", "pg_dumpall"),
        ("bash -o pipefail -c '/opt/backup.sh | gzip'", "backup.sh"),
        ("sh /opt/backup.sh", "backup.sh"),
        ("env -u LANG A='x geheim' timeout -k 5 3600 chronic restic backup", "restic"),
        ("taskset -c 0-1 rsync -a /srv b:", "rsync"),
        ("{ nice updatedb; }", "updatedb"),
        ("runuser -l postgres -c 'pg_dumpall'", "pg_dumpall"),
        ("runuser - postgres -c pg_dumpall", "pg_dumpall"),
        ("runuser -u postgres -- pg_dumpall", "pg_dumpall"),
        ("runuser --user=postgres pg_dumpall", "pg_dumpall"),
        ("flock --nonblock --conflict-exit-code 0 /run/lock/b /opt/backup.sh", "backup.sh"),
        ("flock --wait 5 /run/lock/b /opt/backup.sh", "backup.sh"),
        ("setsid --wait /opt/backup.sh", "backup.sh"),
        ("chrt --sched-runtime 5 0 /opt/backup.sh", "chrt"),
        ("sudo --prompt geheim /opt/backup.sh", "sudo"),
        ("sudo -uroot /opt/backup.sh geheim", "backup.sh"),
        ("runuser -upostgres pg_dumpall geheim", "pg_dumpall"),
        ("systemd-cat -tbackup /opt/backup.sh geheim", "backup.sh"),
        ("sudo --shell /opt/backup.sh geheim", "sudo"),
        ("su --shell /bin/sh postgres -c pg_dumpall", "pg_dumpall"),
        ("env -S 'pg_dump geheim'", "env"),
        ("PGPASSWORD=$(cat $(dirname /etc/x)/geheim) pg_dump shop", "pg_dump"),
        ("PGPASSWORD=`echo geheim` pg_dump shop", "pg_dump"),
        ("export PGPASSWORD=$(cat /etc/x; echo geheim); pg_dump shop", "pg_dump"),
        ("sleep $((RANDOM / 300)); pg_dump shop", "pg_dump"),
        ("bash -c ''", "bash"),
        ("if [ -x /opt/backup.sh ]; then /opt/backup.sh; fi", "backup.sh"),
        ("set -e; . /etc/profile; sleep 60 && /opt/backup.sh", "backup.sh"),
        ("export PGPASSWORD='a;geheim b'; pg_dump shop", "pg_dump"),
        ('export PGPASSWORD="a\\";geheim b"; pg_dump shop', "pg_dump"),
        ("systemd-run --scope -p CPUQuota=10% /opt/backup.sh", "systemd-run"),
        # A quote that nobody closes.
        ("nice /opt/backup.sh 'geheim", "backup.sh"),
        ("sudo -u postgres", "sudo"),
    ],
)
def test_only_the_program_is_kept(command: str, program: str) -> None:
    (line,) = parse_crontab(f"0 1 * * * {command}", has_user=False)
    assert line.program == program
    assert "geheim" not in repr(line)


def test_what_runs_nothing() -> None:
    text = "# remark\n\nSHELL=/bin/sh\nPATH = /bin\n61 * * * * job\n* * * * foo job\n*/x * * * * job\n@reboot job\n1 2 3\n5-1 * * * * job\n"
    assert parse_crontab(text, has_user=False) == ()


def test_lines_keep_their_numbers() -> None:
    lines = parse_crontab("# one\n1 1 * * * root a\n\n2 2 * * * root b\n", has_user=True)
    assert [(line.number, line.program) for line in lines] == [(2, "a"), (4, "b")]


def test_what_leaves_the_work_to_systemd() -> None:
    text = "30 3 * * 0 root test -e /run/systemd/system || SERVICE_MODE=1 /usr/lib/e2scrub_all_cron\n"
    (line,) = parse_crontab(text, has_user=True)
    assert line.defers_to_systemd
    assert line.program == "e2scrub_all_cron"
