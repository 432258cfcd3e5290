"""The whole contract of a ledger: one class to inherit, with a fixture `world`."""

from tests.contracts.ledger_extents import AdvanceContract, ClaimContract, FinishContract
from tests.contracts.ledger_faults import LostResponseContract, RaceContract
from tests.contracts.ledger_jobs import (
    CloseContract,
    ConnectorContract,
    EndContract,
    IdentityContract,
    PlanContract,
    PublishContract,
    RegistrationContract,
    ReplayContract,
)
from tests.contracts.ledger_notes import (
    FindRegisteredContract,
    ManyJobsContract,
    NamesContract,
    NotesContract,
)
from tests.contracts.ledger_slots import LeaseContract, SettleContract


class LedgerContract(
    IdentityContract,
    ConnectorContract,
    NamesContract,
    NotesContract,
    RegistrationContract,
    FindRegisteredContract,
    ManyJobsContract,
    PlanContract,
    EndContract,
    CloseContract,
    ReplayContract,
    PublishContract,
    ClaimContract,
    AdvanceContract,
    FinishContract,
    LeaseContract,
    SettleContract,
    LostResponseContract,
    RaceContract,
):
    """Tests of every store, of lost responses and of races."""
