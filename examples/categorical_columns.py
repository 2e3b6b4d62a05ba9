"""Text columns go in as they are: 600 shops, some prices missing, and a shop that training never saw."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state

from dmlgbm import DMLGBMRegressor

N_ROWS, N_SHOPS = 20_000, 600


def main() -> None:
    random = check_random_state(0)
    shop = random.randint(N_SHOPS, size=N_ROWS)
    price = random.uniform(1.0, 9.0, N_ROWS)
    demand = random.normal(0.0, 20.0, N_SHOPS)
    sold = 100.0 + demand[shop] - 8.0 * price + random.normal(0.0, 5.0, N_ROWS)
    price[::10] = np.nan
    sales = pd.DataFrame({"shop": [f"shop {number}" for number in shop], "price": price})

    model = DMLGBMRegressor(n_estimators=200, min_data_per_group=20).fit(sales[:16_000], sold[:16_000])
    print(f"R2 on the last 4,000 rows: {model.score(sales[16_000:], sold[16_000:]):.3f}")
    print(f"Splits on shop and price: {model.feature_importances_.astype(int).tolist()}")

    visit = pd.DataFrame({"shop": ["shop 1", "a new shop", None], "price": [5.0, 5.0, 5.0]})
    print(f"A known, an unseen and a missing shop: {model.predict(visit).round(1).tolist()}")
    try:
        model.set_params(handle_unknown="error").predict(visit)
    except ValueError as error:
        print(f'With handle_unknown="error": {error}')


if __name__ == "__main__":
    main()
