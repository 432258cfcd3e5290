"""The whole contract of a ledger: one class to inherit, with a fixture `world`."""

from tests.contracts.ledger_extents import AdvanceContract, ClaimContract, FinishContract
from tests.contracts.ledger_faults import LostAnswerContract, RaceContract
from tests.contracts.ledger_jobs import (
    AnnouncementContract,
    CloseContract,
    ConnectorContract,
    EndContract,
    IdentityContract,
    PlanContract,
    RegistrationContract,
    ReplayContract,
)
from tests.contracts.ledger_notes import KnownContract, NamesContract, NotesContract
from tests.contracts.ledger_slots import LeaseContract, SettleContract


class LedgerContract(
    IdentityContract,
    ConnectorContract,
    NamesContract,
    NotesContract,
    RegistrationContract,
    KnownContract,
    PlanContract,
    EndContract,
    CloseContract,
    ReplayContract,
    AnnouncementContract,
    ClaimContract,
    AdvanceContract,
    FinishContract,
    LeaseContract,
    SettleContract,
    LostAnswerContract,
    RaceContract,
):
    """Tests of every store, of lost responses and of races."""
