"""The journal of a run: each outcome is committed as it arrives, so a run that is killed goes on where it stopped."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any


class Journal:
    """A key-value store in one SQLite file. Safe to use from several threads."""

    def __init__(self, path: Path):
        self.lock = threading.Lock()
        self.base = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self.base.execute("PRAGMA journal_mode=WAL")
        self.base.execute("PRAGMA synchronous=FULL")
        self.base.execute(
            "CREATE TABLE IF NOT EXISTS entries (kind TEXT, key TEXT, question TEXT, answer TEXT, at REAL,"
            " PRIMARY KEY (kind, key))"
        )

    def get(self, kind: str, key: str) -> Any | None:
        with self.lock:
            row = self.base.execute(
                "SELECT answer FROM entries WHERE kind=? AND key=?", (kind, key)
            ).fetchone()
        return json.loads(row[0]) if row else None

    def put(self, kind: str, key: str, question: Any, answer: Any) -> None:
        row = (kind, key, json.dumps(question, default=list), json.dumps(answer, default=list), time.time())
        with self.lock:
            self.base.execute("INSERT OR REPLACE INTO entries VALUES (?,?,?,?,?)", row)

    def count(self, kind: str) -> int:
        with self.lock:
            return int(self.base.execute("SELECT COUNT(*) FROM entries WHERE kind=?", (kind,)).fetchone()[0])

    def all(self, kind: str) -> list[tuple[Any, Any]]:
        """(question, answer) of every entry, in the order in which they arrived."""
        with self.lock:
            rows = self.base.execute(
                "SELECT question, answer FROM entries WHERE kind=? ORDER BY at", (kind,)
            ).fetchall()
        return [(json.loads(q), json.loads(a)) for q, a in rows]

    def close(self) -> None:
        with self.lock:
            self.base.close()
