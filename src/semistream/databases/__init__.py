"""R where it already is: a table in PostgreSQL, MariaDB, SQLite or DuckDB."""
