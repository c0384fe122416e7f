"""Where a PostgreSQL server is reached."""

from __future__ import annotations

import msgspec


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server listens, and the role and database to connect as. It never holds a password."""

    host: str
    """A name or an IP address, or the absolute path of the folder that holds the server's socket, as libpq takes it."""
    port: int
    user: str
    dbname: str = "postgres"
    parameters: dict[str, str] = {}
    """Further parameters of libpq, such as sslmode; none of them is a secret."""
    inherited: tuple[int, ...] = ()
    """Descriptors of open files that `parameters` name, which a child that connects needs, too."""
    side_dbname: str = "postgres"
    """Another database, for connections that must not count for `dbname`."""

    @property
    def is_plain(self) -> bool:
        """Whether host, port, user and database say everything."""
        return not self.parameters

    def keywords(self) -> dict[str, str]:
        """Return the parameters that libpq is given, by their names."""
        return {
            **self.parameters,
            "host": self.host,
            "port": str(self.port),
            "user": self.user,
            "dbname": self.dbname,
        }

    def aside(self) -> Address:
        """Return the address of the other database."""
        return msgspec.structs.replace(self, dbname=self.side_dbname)

    def conninfo(self) -> str:
        """Return the connection string, which programs take for a database's name."""
        from psycopg.conninfo import make_conninfo  # noqa: PLC0415 - those that only name a server need none

        return make_conninfo("", **self.keywords())

    @classmethod
    def read(cls, conninfo: str) -> Address:
        """Read a connection string that `conninfo` made."""
        from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415 - see `conninfo`

        found = {name: str(value) for name, value in conninfo_to_dict(conninfo).items()}
        host, port, user, dbname = (found.pop(name) for name in ("host", "port", "user", "dbname"))
        return cls(host=host, port=int(port), user=user, dbname=dbname, parameters=found)
