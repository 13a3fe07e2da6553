CREATE TABLE broker (id int PRIMARY KEY, trades bigint NOT NULL, commission bigint NOT NULL);
CREATE TABLE customer (id int PRIMARY KEY, broker int NOT NULL, tier int NOT NULL);
CREATE TABLE account (id int PRIMARY KEY, customer int NOT NULL, balance bigint NOT NULL);
CREATE INDEX ON account (customer);
CREATE TABLE security (id int PRIMARY KEY, price bigint NOT NULL, volume bigint NOT NULL);
CREATE TABLE holding (account int, symbol int, quantity bigint NOT NULL, PRIMARY KEY (account, symbol));
CREATE TABLE lot (account int, symbol int, trade bigint, quantity bigint NOT NULL, price bigint NOT NULL,
	PRIMARY KEY (account, symbol, trade));
CREATE TABLE trade (id bigint PRIMARY KEY, account int NOT NULL, symbol int NOT NULL, quantity bigint NOT NULL,
	limit_price bigint NOT NULL, price bigint NOT NULL, commission bigint NOT NULL, status bigint NOT NULL);
CREATE INDEX ON trade (account, id);
CREATE TABLE change (trade bigint, status bigint, at timestamptz NOT NULL, PRIMARY KEY (trade, status));
CREATE TABLE settlement (trade bigint PRIMARY KEY, amount bigint NOT NULL);
CREATE TABLE cash (trade bigint PRIMARY KEY, amount bigint NOT NULL);
-- the order book
CREATE TABLE request (symbol int, trade bigint, quantity bigint NOT NULL, limit_price bigint NOT NULL,
	PRIMARY KEY (symbol, trade));

CREATE FUNCTION trade_order(id bigint, acct int, sym int, qty bigint, lim bigint, st bigint, undo bool)
RETURNS bool LANGUAGE plpgsql AS $$
DECLARE price bigint; tier int; balance bigint; executing int; held bigint;
BEGIN
	SELECT s.price INTO STRICT price FROM security s WHERE s.id = sym;
	SELECT c.tier, a.balance, b.id INTO STRICT tier, balance, executing
		FROM account a JOIN customer c ON c.id = a.customer JOIN broker b ON b.id = c.broker WHERE a.id = acct;
	SELECT sum(l.quantity) INTO held FROM lot l WHERE l.account = acct AND l.symbol = sym;
	IF undo THEN
		RETURN false;
	END IF;
	INSERT INTO trade VALUES (id, acct, sym, qty, lim, 0, 0, st);
	INSERT INTO change VALUES (id, st, now());
	IF lim > 0 THEN
		INSERT INTO request VALUES (sym, id, qty, lim);
	END IF;
	RETURN true;
END $$;

CREATE FUNCTION trade_result(tid bigint, at_price bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE t trade; l lot; rest bigint; used bigint; cost bigint; fee bigint; executing int; held bigint;
BEGIN
	SELECT * INTO STRICT t FROM trade WHERE id = tid FOR UPDATE;
	IF t.status = 3 THEN
		RETURN;
	END IF;
	-- locks the account, so that trades of one holding are executed one after another
	SELECT c.broker INTO STRICT executing FROM account a JOIN customer c ON c.id = a.customer
		WHERE a.id = t.account FOR UPDATE OF a;
	rest := t.quantity;
	FOR l IN SELECT * FROM lot WHERE account = t.account AND symbol = t.symbol ORDER BY trade LOOP
		EXIT WHEN rest = 0 OR sign(l.quantity) = sign(rest);
		used := sign(rest) * least(abs(rest), abs(l.quantity));
		IF l.quantity + used = 0 THEN
			DELETE FROM lot WHERE account = l.account AND symbol = l.symbol AND trade = l.trade;
		ELSE
			UPDATE lot SET quantity = l.quantity + used
				WHERE account = l.account AND symbol = l.symbol AND trade = l.trade;
		END IF;
		rest := rest - used;
	END LOOP;
	IF rest <> 0 THEN
		INSERT INTO lot VALUES (t.account, t.symbol, tid, rest, at_price);
	END IF;
	INSERT INTO holding VALUES (t.account, t.symbol, t.quantity)
		ON CONFLICT (account, symbol) DO UPDATE SET quantity = holding.quantity + excluded.quantity
		RETURNING quantity INTO held;
	IF held = 0 THEN
		DELETE FROM holding WHERE account = t.account AND symbol = t.symbol;
	END IF;
	cost := t.quantity * at_price;
	fee := 500 + abs(cost) / 1000;
	UPDATE trade SET price = at_price, commission = fee, status = 3 WHERE id = tid;
	INSERT INTO change VALUES (tid, 3, now());
	INSERT INTO settlement VALUES (tid, cost);
	INSERT INTO cash VALUES (tid, cost);
	UPDATE account SET balance = balance - cost - fee WHERE id = t.account;
	UPDATE broker SET trades = trades + 1, commission = commission + fee WHERE id = executing;
END $$;

CREATE FUNCTION market_feed(symbols int[], prices bigint[], volumes bigint[])
RETURNS TABLE (id bigint, account int, symbol int, quantity bigint, limit_price bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
	UPDATE security s SET price = q.price, volume = s.volume + q.volume
		FROM unnest(symbols, prices, volumes) AS q (symbol, price, volume) WHERE s.id = q.symbol;
	RETURN QUERY WITH triggered AS (
		DELETE FROM request r USING unnest(symbols, prices) AS q (symbol, price)
		WHERE r.symbol = q.symbol AND (r.quantity > 0 AND q.price <= r.limit_price
			OR r.quantity < 0 AND q.price >= r.limit_price) RETURNING r.trade),
	changed AS (
		INSERT INTO change SELECT trade, 2, now() FROM triggered)
	UPDATE trade t SET status = 2 FROM triggered r WHERE t.id = r.trade
		RETURNING t.id, t.account, t.symbol, t.quantity, t.limit_price;
END $$;

-- the accounts' assets, and the number of changes of the newest trades of the first account
CREATE FUNCTION customer_position(cust int, history bool, newest int, OUT assets bigint[], OUT changes bigint)
LANGUAGE plpgsql AS $$
DECLARE tier int;
BEGIN
	SELECT c.tier INTO STRICT tier FROM customer c WHERE c.id = cust;
	SELECT array_agg(a.balance + coalesce((SELECT sum(h.quantity * s.price) FROM holding h
		JOIN security s ON s.id = h.symbol WHERE h.account = a.id), 0)::bigint ORDER BY a.id) INTO assets
		FROM account a WHERE a.customer = cust;
	changes := 0;
	IF history THEN
		SELECT count(*) INTO changes FROM (SELECT t.id FROM trade t
			WHERE t.account = (SELECT min(a.id) FROM account a WHERE a.customer = cust)
			ORDER BY t.id DESC LIMIT newest) t JOIN change c ON c.trade = t.id;
	END IF;
END $$;

CREATE FUNCTION trade_status(acct int, newest int) RETURNS SETOF trade LANGUAGE plpgsql AS $$
DECLARE executing int;
BEGIN
	SELECT b.id INTO STRICT executing FROM account a JOIN customer c ON c.id = a.customer
		JOIN broker b ON b.id = c.broker WHERE a.id = acct;
	RETURN QUERY SELECT * FROM trade t WHERE t.account = acct ORDER BY t.id DESC LIMIT newest;
END $$;
