package httpd

import (
	"fmt"
	"net/http"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"strconv"
	"strings"
	"time"
)

// Profiles of a running node, for `go tool pprof` and `go tool trace`, if enabled. They are served
// like those of net/http/pprof, which is not imported: it would register them on
// http.DefaultServeMux of every program that links a node, without the checks here. A process
// records at most one CPU profile and one trace at once.

// Bounds of a profile over time.
const (
	profileSeconds = 30 // unless the request says otherwise
	traceSeconds   = 1
	maxSeconds     = 300
	profileGrace   = 30 * time.Second // to send what was gathered
)

// profiles registers /debug/pprof/.
func profiles(mux *http.ServeMux) {
	mux.HandleFunc("GET /debug/pprof/{$}", func(w http.ResponseWriter, _ *http.Request) {
		var list strings.Builder
		fmt.Fprintf(&list, "profile?seconds=%d\ntrace?seconds=%d", profileSeconds, traceSeconds)
		for _, p := range pprof.Profiles() {
			fmt.Fprintf(&list, "\n%s", p.Name())
		}
		text(w, http.StatusOK, list.String())
	})
	mux.HandleFunc("GET /debug/pprof/profile", func(w http.ResponseWriter, req *http.Request) {
		start := func() error { return pprof.StartCPUProfile(w) }
		over(w, req, profileSeconds, start, pprof.StopCPUProfile)
	})
	mux.HandleFunc("GET /debug/pprof/trace", func(w http.ResponseWriter, req *http.Request) {
		over(w, req, traceSeconds, func() error { return trace.Start(w) }, trace.Stop)
	})
	mux.HandleFunc("GET /debug/pprof/{name}", snapshot)
}

// over sends what is recorded between start and stop: for the request's number of seconds, or
// until its client disconnects.
func over(w http.ResponseWriter, req *http.Request, seconds int, start func() error, stop func()) {
	if asked := req.FormValue("seconds"); asked != "" {
		var err error
		if seconds, err = strconv.Atoi(asked); err != nil || seconds < 1 || seconds > maxSeconds {
			text(w, http.StatusBadRequest,
				fmt.Sprintf("seconds must be a number from 1 to %d", maxSeconds))
			return
		}
	}
	wait := time.Duration(seconds) * time.Second
	// The server's write timeout would cut the recording off.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(wait + profileGrace))
	binary(w)
	if err := start(); err != nil {
		text(w, http.StatusServiceUnavailable, err.Error()+": retry when it has ended")
		return
	}
	defer stop()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-req.Context().Done():
	}
}

// snapshot sends the current state of a profile, as text if debug is set.
func snapshot(w http.ResponseWriter, req *http.Request) {
	p := pprof.Lookup(req.PathValue("name"))
	if p == nil {
		text(w, http.StatusNotFound, "no such profile: /debug/pprof/ lists them")
		return
	}
	if p.Name() == "heap" && req.FormValue("gc") != "" {
		runtime.GC()
	}
	debug, _ := strconv.Atoi(req.FormValue("debug"))
	if debug != 0 {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	} else {
		binary(w)
	}
	_ = p.WriteTo(w, debug) // fails only if the client has disconnected
}

func binary(w http.ResponseWriter) { w.Header().Set("Content-Type", "application/octet-stream") }
