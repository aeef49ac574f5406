"""Which protection of the labels, and how strong: a search within limits, and a check of its best with fresh seeds."""

from cutlayer_sweep.recommend.result import Limits as Limits
from cutlayer_sweep.recommend.result import Recommendation as Recommendation
from cutlayer_sweep.recommend.result import parse_guarantee as parse_guarantee
from cutlayer_sweep.recommend.search import SearchRequest as SearchRequest
from cutlayer_sweep.recommend.search import recommend as recommend
from cutlayer_sweep.recommend.wording import check_table as check_table
from cutlayer_sweep.recommend.wording import front_table as front_table
from cutlayer_sweep.recommend.wording import recommended_diff as recommended_diff
from cutlayer_sweep.recommend.wording import verdict as verdict
