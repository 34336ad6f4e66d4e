.PHONY: install check test decisions wheel clean

install: ## make .venv with relight and its tools
	scripts/setup

check: install ## lint, format, types, imports
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports

test: install ## all tests that can run here
	scripts/test

decisions: install ## tests of decisions alone: every line and every branch, without chance
	.venv/bin/coverage run --data-file=build/coverage -m pytest -q tests/unit/test_cause_rules.py tests/unit/test_decide_*.py -k "not properties and not world"
	.venv/bin/coverage report --data-file=build/coverage

wheel: install ## dist/relight-*.whl
	.venv/bin/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
