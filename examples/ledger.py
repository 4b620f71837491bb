# %% [markdown]
# # What a run has found
# A notebook in the percent format: VS Code and PyCharm open it as one, Jupyter does with jupytext.
# It may stay open all day: it stops no stage, and no stage refuses it. Start it in a checkout.

# %%
from pathlib import Path

import altair as alt
import cudal1
import polars as pl

ledger = cudal1.connect("data")


def ask(question: str) -> pl.DataFrame:
    return ledger.sql(question).pl()


# %% [markdown]
# ## The fastest candidates, and who wrote them

# %%
best = ask("select level, name, certified, authors, candidate_id from best")
print(best.head(10))

# %%
fastest = best["candidate_id"][0]
print(ask(f"select source from sources where candidate_id = '{fastest}'").item())

# %% [markdown]
# ## How each stage does

# %%
success = ask("select stage, split, num_answers, success_rate, mean_reward from success")
print(success)

# %%
chart = (
    alt.Chart(success)
    .mark_point()
    .encode(x="success_rate", y=alt.Y("stage", sort=None), color="split")
)
Path("data/success.html").write_text(chart.to_html(), encoding="utf-8")

# %% [markdown]
# ## Why answers fail

# %%
print(
    ask(
        "select author, outcome, count(*) as num_answers from outcomes "
        "where outcome <> 'correct' group by all order by num_answers desc limit 10"
    )
)

# %% [markdown]
# ## Where the time goes

# %%
print(ask("select stage, started_at, took_s from stage_runs where is_latest"))
print(
    ask(
        "select date_trunc('hour', judged_at) as hour, count(*) as num_verdicts, "
        "sum(judge_s) as judge_s from judged group by all order by hour"
    )
)
