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

// The profiles of a running node, for `go tool pprof` and `go tool trace`, where the
// operator has asked for them. They are served as net/http/pprof does, which is not used:
// importing it would serve them on http.DefaultServeMux of every program that links a
// node, without the guard here. Each is called on the goroutine of its request; of a
// profile or trace over time there is one at a time in a process.

// Bounds of a profile over some time.
const (
	profileSeconds = 30 // unless the request says otherwise
	traceSeconds   = 1
	maxSeconds     = 300
	profileGrace   = 30 * time.Second // to send what was gathered
)

// profiles adds /debug/pprof/ to the paths.
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

// over answers with what is gathered between start and stop, for as many seconds as the
// request says, or until its client goes.
func over(w http.ResponseWriter, req *http.Request, seconds int, start func() error, stop func()) {
	if asked := req.FormValue("seconds"); asked != "" {
		var err error
		if seconds, err = strconv.Atoi(asked); err != nil || seconds < 1 || seconds > maxSeconds {
			text(w, http.StatusBadRequest,
				fmt.Sprintf("seconds is a number from 1 to %d", maxSeconds))
			return
		}
	}
	wait := time.Duration(seconds) * time.Second
	// The server's own limit is for answers that are ready.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(wait + profileGrace))
	binary(w)
	if err := start(); err != nil {
		text(w, http.StatusServiceUnavailable, err.Error()+": try again when it has ended")
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

// snapshot answers with a profile as it stands, as text if debug is given.
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
	_ = p.WriteTo(w, debug) // whoever asked has gone
}

func binary(w http.ResponseWriter) { w.Header().Set("Content-Type", "application/octet-stream") }
