"""The suite must catch what it is for: defences that do nothing and attacks that cheat or guess."""

from dataclasses import replace

import pytest
import torch

from cutlayer.accounting import NoFormalGuarantee
from cutlayer.attacks.catalogue import Norm
from cutlayer.attacks.label.base import Guess, LabelAttack, Target, step_by_step
from cutlayer.config import FrozenModel
from cutlayer.protections import REGISTRY
from cutlayer.protections.contract.base import Asset, Protection, Side
from cutlayer.testing import check_attack, check_protection

from . import suite
from .table import PROTECTIONS, AttackCase, ProtectionCase


class HalfConfig(FrozenModel):
    factor: float = 0.5


class Half(Protection[HalfConfig]):
    """Halve every gradient.

    Reference: nobody, 2024.

    Guarantee: none, empirical.
    """

    name = "half"
    config = HalfConfig
    start = HalfConfig()
    side = Side.ACTIVE
    protects = Asset.LABELS
    reference = "nobody 2024, section 0"
    rank = 30
    no_guarantee = "halving hides nothing"
    counters = ("sent",)

    def gradient_out(self, g, party, view):
        self.count(sent=1)
        return g * self.settings.factor


class Flat(Half):
    """Send the same gradient for every row.

    Reference: nobody, 2024.

    Guarantee: none, empirical.
    """

    name = "flat"

    def gradient_out(self, g, party, view):
        self.count(sent=1)
        return g.mean(dim=0).expand_as(g).contiguous()


def lowering(limit):
    return ProtectionCase({}, lowers=(("norm", Target.GRADIENT, limit),))


def test_an_unregistered_defence_that_works_passes():
    check_protection(Flat, {}, lowers=[("norm", "gradient", 0.55)])


def test_a_defence_without_effect_fails():
    with pytest.raises(AssertionError, match=r"norm on gradient reads 1\.000"):
        suite.lowers_its_attacks(Half, lowering(0.9))


class Rotated(Flat):
    """Rotate and rescale every batch of gradients anew.

    Reference: nobody, 2024.

    Guarantee: none, empirical.
    """

    def gradient_out(self, g, party, view):
        self.count(sent=1)
        draw = torch.Generator().manual_seed(view.step)
        return 5.0 * g @ torch.linalg.qr(torch.randn(g.shape[1], g.shape[1], generator=draw)).Q


class Whitened(Protection[HalfConfig]):
    """Whiten every batch of embeddings, so that no direction varies more than another.

    Reference: nobody, 2024.

    Guarantee: none, empirical.
    """

    name = "whitened"
    config = HalfConfig
    start = HalfConfig()
    side = Side.PASSIVE
    protects = Asset.LABELS
    reference = "nobody 2024, section 0"
    rank = 30
    no_guarantee = "whitening hides nothing"
    counters = ("sent",)

    def embedding_out(self, e, view):
        self.count(sent=1)
        moved = e - e.mean(dim=0)
        values, vectors = torch.linalg.eigh(moved.T @ moved / len(moved))
        return moved @ vectors / values.sqrt()


@pytest.mark.parametrize(
    ("mutant", "attack"),
    [
        (Rotated, ("joint_spectral", Target.GRADIENT, 0.9)),
        (Rotated, ("off_norm", Target.GRADIENT, 0.9)),
        (Rotated, ("bilinear", Target.GRADIENT, 0.9)),
        (Rotated, ("exploit", Target.GRADIENT, 0.9)),
        (Rotated, ("strong_probe", Target.GRADIENT, 0.9)),
        (Whitened, ("few_labels", Target.EMBEDDING, 0.75)),
        (Whitened, ("strong_probe", Target.EMBEDDING, 0.75)),
    ],
)
def test_a_defence_that_only_rotates_rescales_or_whitens_fails(mutant, attack):
    with pytest.raises(AssertionError, match=f"{attack[0]} on {attack[1]} reads"):
        suite.withstands_adaptive_attacks(mutant, ProtectionCase({}, adaptive=(attack,)))


def test_the_published_noise_of_marvell_fails():
    case = ProtectionCase({"sum_kl": 0.16, "form": "paper"}, adaptive=(("off_norm", Target.GRADIENT, 0.9),))
    suite.lowers_its_attacks(REGISTRY["marvell"], replace(case, lowers=(("norm", Target.GRADIENT, 0.65),)))
    with pytest.raises(AssertionError, match="off_norm on gradient reads"):
        suite.withstands_adaptive_attacks(REGISTRY["marvell"], case)


def test_a_defence_that_changes_nothing_fails():
    with pytest.raises(AssertionError):
        suite.proves_what_it_did(Half, ProtectionCase({"factor": 1.0}, lowers=()))


def test_a_defence_that_forgets_its_state_fails():
    class Forgetful(Flat):
        seen = 0

        def gradient_out(self, g, party, view):
            self.seen += 1
            return super().gradient_out(g, party, view)

        def metrics(self):
            return {"seen": self.seen}

    with pytest.raises(AssertionError):
        suite.survives_a_resume(Forgetful, lowering(0.55))


def test_a_defence_that_draws_from_the_global_state_fails():
    class Careless(Flat):
        def gradient_out(self, g, party, view):
            return g + torch.randn_like(g)

    with pytest.raises(AssertionError):
        suite.repeats_itself(Careless, lowering(0.55))


def test_a_defence_against_departures_that_drops_nobody_fails():
    with pytest.raises(AssertionError, match=r"undefended 0\.9"):
        suite.works_after_a_departure(Half, ProtectionCase({}, loses=0.06))


def test_a_defence_that_changes_the_shape_fails():
    class Narrow(Flat):
        def gradient_out(self, g, party, view):
            return g[:, :1]

    with pytest.raises((AssertionError, RuntimeError)):
        suite.keeps_shapes_and_types(Narrow, lowering(0.55))


def test_a_defence_that_changes_the_shape_with_three_classes_fails():
    class Binary(Flat):
        tasks = frozenset({"binary", "multiclass"})

        def gradient_out(self, g, party, view):
            sent = super().gradient_out(g, party, view)
            return sent.double() if bool((view.labels > 1).any()) else sent

    with pytest.raises(AssertionError, match=r"float32, got .* torch\.float64"):
        suite.keeps_shapes_and_types(Binary, lowering(0.55))


def test_a_defence_of_a_passive_party_that_asks_for_the_task_fails():
    class Curious(Whitened):
        def event(self, plan):
            return NoFormalGuarantee(f"{len(self.context.task.classes)} classes")

    with pytest.raises(AttributeError):
        suite.has_an_event(Curious, ProtectionCase({}))


def test_a_defence_that_claims_what_its_event_denies_fails():
    class Boastful(Flat):
        """Guarantee: total. Reference: nobody."""

    with pytest.raises(AssertionError, match="disagree"):
        suite.has_an_event(Boastful, lowering(0.55))


class Guesser(LabelAttack):
    """Score at random. Reference: nobody, 2024."""

    name = "guesser"
    reference = "nobody 2024, section 0"
    reads = (Target.GRADIENT,)
    needs = frozenset()

    def run(self, view, knowledge):
        draw = torch.Generator().manual_seed(1)
        return step_by_step(view, lambda m, _: Guess(torch.rand(len(m), generator=draw)))


def test_what_the_public_checks_cannot_try_is_named():
    with pytest.raises(AssertionError, match="a subclass of LabelAttack; the checks of the other families"):
        check_attack(Flat, {"gradient": 0.95})
    with pytest.raises(AssertionError, match=r"a kind of message \(gradient, .*, got gradients"):
        check_attack(Norm, {"gradients": 0.95})
    with pytest.raises(AssertionError, match="a limit for each of"):
        check_attack(Norm, {"embedding": 0.95})
    with pytest.raises(AssertionError, match="an attack of Cutlayer on the gradient, got nrom"):
        check_protection(Flat, {}, lowers=[("nrom", "gradient", 0.55)])
    with pytest.raises(AssertionError, match=r"ConfigError with 'privacy.flat' in its message for the settings"):
        check_protection(Flat, {}, lowers=[("norm", "gradient", 0.55)], refused=[{"factor": -1.0}])


def test_an_attack_that_guesses_fails():
    case = AttackCase({Target.GRADIENT: 0.9})
    suite.refuses_what_it_lacks(Guesser, case)
    with pytest.raises(AssertionError):
        suite.succeeds_undefended(Guesser, case)


def test_an_attack_that_leaves_a_row_out_fails():
    class Choosy(Norm):
        def run(self, view, knowledge):
            scores = super().run(view, knowledge)
            return replace(scores, rows=scores.rows[1:], values=scores.values[1:], batch=scores.batch[1:], scale=None)

    with pytest.raises(AssertionError, match="a score for each of 2048 unknown rows, once"):
        suite.returns_well_formed_scores(Choosy, AttackCase({Target.GRADIENT: 0.95}))


def test_what_is_missing_or_turned_is_named():
    class Turned(Norm):
        def run(self, view, knowledge):
            scores = super().run(view, knowledge)
            return replace(scores, values=-scores.values)

    class Undated(Flat):
        reference = "nobody"

    class Unstarted(Flat):
        __doc__ = Flat.__doc__
        start = FrozenModel()

    class Vague(REGISTRY["dp_embedding"]):
        """Guarantee: epsilon. Reference: nobody."""

    case = AttackCase({Target.GRADIENT: 0.95})
    with pytest.raises(AssertionError, match=r"norm on gradient above 0\.95 undefended, got 0\.0.*: turn the sign"):
        suite.succeeds_undefended(Turned, case)
    with pytest.raises(AssertionError, match="a paper's year, or 'this project', got 'nobody'"):
        suite.declares_what_it_is(Undated, lowering(0.55))
    with pytest.raises(AssertionError, match="expected `start`"):
        suite.declares_what_it_is(Unstarted, lowering(0.55))
    with pytest.raises(AssertionError, match="what neighbours differ in"):
        suite.has_an_event(Vague, PROTECTIONS["dp_embedding"])


def test_an_attack_that_sees_ghosts_in_dead_messages_fails():
    class Ghosts(Guesser):
        reads = (Target.EMBEDDING,)  # steps of zero gradients are left out before any attack

    with pytest.raises(AssertionError):
        suite.bears_dead_messages(Ghosts, AttackCase({Target.EMBEDDING: 0.9}))


def test_an_attack_that_ranks_roundings_fails():
    """Cosines of collinear rows in float32, ranked to the last bit."""

    class Rounding(LabelAttack):
        name = "rounding"
        reference = "nobody 2024, section 0"
        reads = (Target.GRADIENT,)
        needs = frozenset()

        def run(self, view, knowledge):
            def cosines(m, _):
                return Guess((m @ m[0]) / m.norm(dim=1) / m[0].norm(), scale=self.scale)

            return step_by_step(view, cosines)

    class Tied(Rounding):
        scale = 1.0

    class Ranked(Rounding):
        scale = 0.0

        def run(self, view, knowledge):
            scores = super().run(view, knowledge)
            return replace(scores, values=scores.values.argsort(dim=0).argsort(dim=0).double())

    case = AttackCase({Target.GRADIENT: 0.9})
    suite.ignores_the_last_bit(Tied, case)
    with pytest.raises(AssertionError, match="gradient"):
        suite.ignores_the_last_bit(Ranked, case)
