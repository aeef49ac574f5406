"""Which protection of the labels, and how strong: a search within limits, and a check of its best with fresh seeds."""

from cutlayer.sweeps.recommend.result import Limits, Recommendation, parse_guarantee
from cutlayer.sweeps.recommend.search import SearchRequest, recommend
from cutlayer.sweeps.recommend.wording import check_table, front_table, recommended_diff, verdict

__all__ = [
    "Limits",
    "Recommendation",
    "SearchRequest",
    "check_table",
    "front_table",
    "parse_guarantee",
    "recommend",
    "recommended_diff",
    "verdict",
]
