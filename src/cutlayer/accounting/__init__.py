"""Planned releases (plan), their records (events), their privacy cost (ledger) and the running count (account)."""

from cutlayer.accounting.account import Account as Account
from cutlayer.accounting.composition import DELTA as DELTA
from cutlayer.accounting.composition import Composition as Composition
from cutlayer.accounting.events import DPSGD as DPSGD
from cutlayer.accounting.events import AboutLabels as AboutLabels
from cutlayer.accounting.events import Event as Event
from cutlayer.accounting.events import GaussianRelease as GaussianRelease
from cutlayer.accounting.events import LabelFree as LabelFree
from cutlayer.accounting.events import NoFormalGuarantee as NoFormalGuarantee
from cutlayer.accounting.events import RandomizedGrade as RandomizedGrade
from cutlayer.accounting.events import RandomizedResponse as RandomizedResponse
from cutlayer.accounting.ledger import Entry as Entry
from cutlayer.accounting.ledger import Ledger as Ledger
from cutlayer.accounting.plan import ReleasePlan as ReleasePlan
from cutlayer.accounting.release_log import MARKER as MARKER
from cutlayer.accounting.release_log import ReleaseLog as ReleaseLog
from cutlayer.accounting.release_log import log_of_run as log_of_run
from cutlayer.accounting.row_draws import Pairs as Pairs
from cutlayer.accounting.row_draws import row_pairs as row_pairs
from cutlayer.accounting.slots import ANY_PART as ANY_PART
from cutlayer.accounting.slots import Occasion as Occasion
from cutlayer.accounting.slots import Slot as Slot
from cutlayer.accounting.total import Total as Total
