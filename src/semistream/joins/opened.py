"""A relation that has been opened for a join: its page table, in memory that was reserved first."""

from dataclasses import dataclass

from semistream.errors import BudgetError
from semistream.memory import MemoryLedger
from semistream.relation.reader import PageReader
from semistream.relation.relation import Relation
from semistream.spec import JoinSpec, read_columns
from semistream.units import format_bytes

_SMALL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Opened:
    """The ledger of a join and the reader whose page table is reserved in it.

    Joins that run one after the other over one relation can share it: `auto` opens R once.
    """

    ledger: MemoryLedger
    reader: PageReader

    @classmethod
    def within(
        cls,
        ledger: MemoryLedger,
        relation: Relation,
        spec: JoinSpec,
        partition: int | None = None,
    ) -> "Opened":
        """Reserve the most that the page table can take, load it, and give back what is left over.

        A small one is loaded in any case: if there is no room for it, the join refuses the budget
        as a whole and names the least one.
        """
        whole = relation.reading.whole_pages
        columns = relation.schema.names if whole else list(read_columns(relation, spec))
        most_bytes = relation.page_table_bytes(columns, partition)
        if most_bytes > max(_SMALL_BYTES, ledger.available_bytes):
            raise BudgetError(
                f"the page table of {relation.location} takes up to {format_bytes(most_bytes)} for "
                f"{len(columns)} columns, and a join needs more besides, but only "
                f"{format_bytes(ledger.available_bytes)} of memory are left. Raise memory, or "
                "build the relation with larger pages (page_size)"
            )
        table = ledger.reserve("page table", min(most_bytes, ledger.available_bytes))
        reader = relation.reader(columns, partition)
        table.resize(min(reader.table_bytes, ledger.available_bytes + table.size_bytes))
        return cls(ledger, reader)
