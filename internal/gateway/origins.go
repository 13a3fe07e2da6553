package gateway

import (
	"fmt"
	"net/http"
	"slices"
)

// Requests of web pages. A browser sends the page's origin with every call, since all calls are POST
// requests, also if the page's own name resolves to this node. Only the configured origins may call.

// Headers of calls and answers that browsers let pages use.
const (
	requestHeaders = "Authorization, Content-Type, Connect-Protocol-Version, Connect-Timeout-Ms, Grpc-Timeout, X-Grpc-Web, X-User-Agent"
	answerHeaders  = "Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin"
	// preflightAge is how long a browser may remember that an origin is allowed, in seconds.
	preflightAge = "600"
	// maxOriginShown is the maximum length of an origin in a refusal, in bytes.
	maxOriginShown = 256
)

// fromPages refuses requests of pages whose origins are not allowed, and answers browsers' preflight
// requests. Those have no certificate, so that they come before the identification of the caller.
func fromPages(allowed []string, next http.Handler) http.Handler {
	everywhere := slices.Contains(allowed, "*")
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		origin := req.Header.Get("Origin")
		if origin == "" {
			next.ServeHTTP(w, req)
			return
		}
		h := w.Header()
		h.Add("Vary", "Origin")
		switch {
		case everywhere:
			h.Set("Access-Control-Allow-Origin", "*")
		case slices.Contains(allowed, origin):
			h.Set("Access-Control-Allow-Origin", origin)
			h.Set("Access-Control-Allow-Credentials", "true")
		default:
			http.Error(w, fmt.Sprintf("pages of %q may not call this gateway: start the node with --gateway-origin and the origin",
				origin[:min(len(origin), maxOriginShown)]), http.StatusForbidden)
			return
		}
		if req.Method != http.MethodOptions {
			h.Set("Access-Control-Expose-Headers", answerHeaders)
			next.ServeHTTP(w, req)
			return
		}
		h.Set("Access-Control-Allow-Methods", "POST")
		h.Set("Access-Control-Allow-Headers", requestHeaders)
		h.Set("Access-Control-Max-Age", preflightAge)
		w.WriteHeader(http.StatusNoContent)
	})
}
