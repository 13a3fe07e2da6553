// Package embedder is the paid service of the example: it computes embeddings of texts over HTTP. It
// is slow, limits the rate of calls, fails now and then, and counts each text that it was paid for.
//
// POST /embed takes a Question and answers with a vector for each text. Above the rate it answers
// with 429 and the header Retry-After in seconds, with decimals. GET /bill answers with the Bill.
//
// A text is paid for when its call is accepted, before the answer is on its way. A text under a key
// that was paid for is not paid for again, but counted as repeated. Keys are kept in memory for as
// long as the service runs.
package embedder
