// Package search serves the web index's search page over HTTP. It reads the full-text
// index that package export keeps up, and, for the duplicates of what it found, the
// repository.
//
// Invariants:
//  1. Everything from the crawl is shown as text: it reaches the page through html/template only, never as HTML, and the
//     page has no script, which its Content-Security-Policy would not run either. Only http and https URLs become links.
//  2. A request is bounded: the query's length and terms, the results that can be paged to, its time, and how many go on
//     at once. There are no wildcards, ranges or regular expressions whose cost depends on the index.
//  3. A query that makes no sense is answered with what is wrong with it; status 400.
//
// # Order of results
//
// By score, of equal scores by URL. The score is the text score times 1 + ln(rank / base
// rank) / 4. The text score is Bleve's tf-idf; a word in the title counts four times, in
// an anchor text that links to the page two and a half times, as much as in the text. The
// rank multiplies: a page with no links to it keeps its text score, an average page's is
// half as much again, and a thousand times the base rank not quite trebles it. So rank
// decides between pages that say the same, and no popular page is found for what it
// hardly mentions.
//
// The command webindex opens and closes the server. It keeps nothing that a crash could lose.
package search
