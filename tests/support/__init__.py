"""What several test suites share: the real Pi, and session files made to order."""
