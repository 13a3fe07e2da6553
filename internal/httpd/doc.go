// Package httpd is a node's HTTP listener: /livez, /readyz, /metrics, /api/v1/status, the
// console at / with the cluster's status (/api/v1/cluster; as a stream without tablets at
// /api/v1/cluster/stream), pages of tablets (/api/v1/tablets), further requests of the console's
// pages (Question) and, if enabled, profiles under /debug/pprof/. Users who have logged in
// (/api/v1/session, login, logout) may perform actions (/api/v1/actions).
//
// Invariants:
//  1. GET and HEAD change nothing. A change is a POST under /api/v1/actions by a user who has
//     logged in with a token or an operator's certificate, as JSON with a header that another
//     site's page cannot send (login.go, ADR 0039). Package internal/rpc authorizes it like every
//     call, behind the interface Operators.
//  2. A slow or hostile client occupies no more than one connection: headers, reads and writes
//     have timeouts. A connection holds a place only while a request on it is answered; health
//     checks need none (places.go, ADR 0052).
//  3. /livez reports that the process answers; /readyz that the node serves or why it does not.
//     It may wait a few seconds for a fresh answer.
//  4. Only requests for the node's own names and addresses are answered, which prevents DNS
//     rebinding.
//  5. The cluster is polled only while there are listeners, once for all of them. Its data reaches
//     documents as text, never as markup (console/dom.js); documents load nothing from other hosts.
//  6. HTTP hides what the user's View hides (view.go), such as what grants hide from the user's gRPC
//     calls. Rows and values require a login unless Options.MayRead permits them. While Options.Closed holds, everything but health,
//     the console's static files and the login itself requires a login, and open streams of other
//     users end. Questions are bounded in number and time; their answers are bounded by the node.
//
// Package node owns a Server and closes it. Nothing of it outlives the process.
package httpd
