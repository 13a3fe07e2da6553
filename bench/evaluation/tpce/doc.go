// Package tpce repeats the paper's synthetic workload (§3.3, Figures 9 and 10): a brokerage like
// that of TPC-E with customers, brokers, accounts, trades and securities, and five of its ten
// transactions, in TPC-E's proportions. It runs the same requests on Percolator, with indexes and
// query plans made by hand, and on PostgreSQL, with stored procedures.
//
// Layout in Percolator: all rows of a broker's customers share the broker's prefix in one table, so
// that a market order, its execution and the broker's totals lie in one tablet and commit in one
// phase. Prices and the book of limit orders are ordered by security, in another table: limit orders
// and the market feed commit in two phases.
//
// As in the paper, the execution of a trade does not write the broker's row, which the trades of a
// hundred customers would contend for. It writes the commission to a side column of the trade, and
// an observer adds the commissions of many trades to their brokers in one transaction.
//
// Invariants, checked at the end of every run (books.check):
//  1. A broker's totals equal the number and the commissions of its completed trades (TPC-E's
//     conditions 1 and 2).
//  2. A holding equals the sum of its lots (condition 3) and of its completed trades.
//  3. A balance equals the deposit less what the completed trades cost.
//  4. The order book contains exactly the pending trades.
//  5. Every acknowledged trade exists, in its acknowledged state or a later one, and every trade
//     that exists was requested.
package tpce
