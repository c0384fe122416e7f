"""Check derived settings with `postgres -C`, and get the number of huge pages that they need.

A version that pgdyno was tried with must accept the whole set; if it does not, the set is at fault. A newer one may refuse
a value that older ones take: what it refuses is left out and reported, unless the user insists on it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from pgdyno.errors import SpecError
from pgdyno.facts.versions import is_untried
from pgdyno.run.cluster.settings_check import count_huge_pages, find_refused
from pgdyno.run.host.process import ServerUser
from pgdyno.run.postgres.installation import Installation
from pgdyno.tune.derive import leave_out, with_huge_pages
from pgdyno.tune.draft import Draft
from pgdyno.tune.memory import huge_page_bytes
from pgdyno.tune.subject import find_missing_values
from pgdyno.tune.types import DerivedSettings, Target


def accept_settings(
    tuning: DerivedSettings,
    installation: Installation,
    *,
    user: ServerUser,
    fixed: Collection[str],
    other_settings: Mapping[str, str] | None = None,
    control_file: Path | None = None,
) -> DerivedSettings:
    """Reduce the set to what the program accepts, and add the number of huge pages that it counts.

    Args:
        tuning: The set.
        installation: Which PostgreSQL.
        user: The account to run it as.
        fixed: Names of settings that the user insists on, which are never left out.
        other_settings: Other settings that the server has.
        control_file: The control file of the cluster; None for a new cluster.

    Raises:
        SpecError: The program refuses the settings, and leaving out single ones does not help.
        HostError: The scratch folder cannot be created.
    """
    subject = tuning.subject
    # Of a machine that is not here, this kernel does not know the default.
    page_bytes = None if subject.is_here else huge_page_bytes(Draft(subject, tuning.values_of(Target.POSTGRESQL)))

    def count(asked: DerivedSettings) -> int | None:
        unchecked = list_unchecked(asked, installation)
        values = {name: value for name, value in asked.values_of(Target.POSTGRESQL).items() if name not in unchecked}
        return count_huge_pages(
            installation,
            {**(other_settings or {}), **values},
            user=user,
            control_file=control_file,
            huge_page_bytes=page_bytes,
        )

    try:
        pages = count(tuning)
    except SpecError:
        if not is_untried(installation.facts.major):
            raise
        derived = {name: value for name, value in tuning.values_of(Target.POSTGRESQL).items() if name not in fixed}
        tuning = leave_out(tuning, find_refused(installation, derived, user=user))
        pages = count(tuning)
    return tuning if pages is None else with_huge_pages(tuning, pages)


def list_unchecked(tuning: DerivedSettings, installation: Installation) -> tuple[str, ...]:
    """List the settings whose values only another build takes, such as that of a machine elsewhere: this one cannot check them."""
    lacking = find_missing_values(installation.facts)
    return tuple(name for name, value in tuning.values_of(Target.POSTGRESQL).items() if value in lacking.get(name, ()))
