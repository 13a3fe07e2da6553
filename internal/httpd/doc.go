// Package httpd is a node's HTTP listener: /livez, /readyz, /metrics, /api/v1/status, the
// console at / with what it shows of the whole cluster (/api/v1/cluster; as a stream, without
// the tablets, at /api/v1/cluster/stream), those tablets by the page (/api/v1/tablets), what
// its pages ask for beside that (Question),
// and, where the operator has asked for them, profiles under /debug/pprof/. Who logs in
// (/api/v1/session, login, logout) may change something (/api/v1/actions).
//
// Invariants:
//  1. GET and HEAD only look. What changes something is a POST under /api/v1/actions, from
//     somebody who is logged in with a token or an operator's certificate, as JSON with a
//     header that no other site's page can send (login.go, ADR 0039). Whether the caller may
//     is decided where all calls are (internal/rpc), behind the interface Operators.
//  2. A slow or hostile client holds no more than one connection: headers, reading and
//     writing are bounded in time. A connection takes a place only while a request on it is answered,
//     and health takes none (places.go, ADR 0052).
//  3. /livez says that the process answers; /readyz that the node serves, and if not,
//     why. It may wait some seconds for that: a probe must not be told ready by what was
//     true an hour ago.
//  4. It answers requests for the node's own names and addresses only, so that no site
//     that a browser visits can read it by a name of its own (DNS rebinding).
//  5. The cluster is asked only while somebody looks, once for all who do. What it says
//     reaches a document as text, never as markup (console/dom.js); documents load and run
//     nothing that another host serves.
//  6. What a call over gRPC would not tell somebody because of grants, HTTP does not tell either
//     (view.go). Rows and values go to nobody whom Options.MayRead refuses, unless he has logged in.
//     While Options.Closed holds, nothing but health goes to anybody who has not; streams that are
//     open then end. Questions of
//     pages are few at once and bounded in time; what they answer is bounded by who answers.
//
// Package node owns a Server and closes it. Nothing of it outlives the process.
package httpd
