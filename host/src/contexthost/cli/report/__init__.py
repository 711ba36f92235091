"""``contexthost context SESSION --html FILE``: a session's context as one page that needs nothing but a browser."""

from contexthost.cli.report.figures import Figures, gather
from contexthost.cli.report.page import page
from contexthost.cli.report.write import check_target, write_report

__all__ = ["Figures", "check_target", "gather", "page", "write_report"]
