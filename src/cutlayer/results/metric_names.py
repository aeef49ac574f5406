"""Names of metrics as people write them: in findings, on the page and in the terminal."""

from __future__ import annotations

_NAMES = {"auc": "AUC", "r2": "R²", "mae": "MAE", "mse": "MSE", "rmse": "RMSE", "log_loss": "log loss", "d2": "D²"}
_NAMES |= {"psnr": "PSNR", "ssim": "SSIM", "baseline_mse": "MSE without embedding", "majority": "majority share"}
_NAMES["tpr_at_1_percent_fpr"] = "TPR at 1 % FPR"
_NAMES |= {"exact": "share read exactly", "certain": "candidates with a certificate"}
_NAMES |= {"ideal": "on the ideal output"}
_NAMES["ndcg"] = "NDCG@10"
_NAMES |= {"gini": "Gini", "ks": "KS", "brier": "Brier score"}


def name_of(key: str) -> str:
    """A metric's key as people write it.

    >>> name_of("auc"), name_of("log_loss"), name_of("balanced_accuracy")
    ('AUC', 'log loss', 'balanced accuracy')
    """
    return _NAMES.get(key, key.replace("_", " "))
