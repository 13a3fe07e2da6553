package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/percolator-go/percolator/internal/rpc"
)

// Errors that a Fault wraps; errors.Is finds them in Validate's error.
var (
	// ErrUnprotected reports that neither certificates nor a permitted insecure mode are configured,
	// or that HTTP would serve plain text on an address that is not a loopback one.
	ErrUnprotected = errors.New("config: node is not protected")
)

// Fault is one problem of a Config.
type Fault struct {
	Field   string // Go path of the field, such as "Batch.Tablet.MaxMessages"
	Problem string // what is wrong with the value
	Fix     string // what to do about it; may be empty
	Kind    error  // a sentinel, or nil
}

// Error returns field, problem and fix in one line.
func (f *Fault) Error() string {
	text := "config: " + f.Field + ": " + f.Problem
	if f.Fix != "" {
		text += "; " + f.Fix
	}
	return text
}

// Unwrap returns the sentinel, or nil.
func (f *Fault) Unwrap() error { return f.Kind }

// checker collects faults.
type checker struct{ faults []error }

func (c *checker) add(field, problem, fix string) {
	c.faults = append(c.faults, &Fault{Field: field, Problem: problem, Fix: fix})
}

func (c *checker) addKind(kind error, field, problem, fix string) {
	c.faults = append(c.faults, &Fault{Field: field, Problem: problem, Fix: fix, Kind: kind})
}

func (c *checker) within(field string, value, least, most int) {
	if value < least || value > most {
		c.add(field, fmt.Sprintf("%d is not between %d and %d", value, least, most), "")
	}
}

func (c *checker) duration(field string, value, least, most time.Duration) {
	if value < least || value > most {
		c.add(field, fmt.Sprintf("%v is not between %v and %v", value, least, most), "")
	}
}

// Validate returns all faults, as an errors.Join of *Fault values; nil if there are none.
func (c *Config) Validate() error {
	var k checker
	c.checkPlace(&k)
	c.checkCluster(&k)
	c.checkProtection(&k)
	c.checkWork(&k)
	c.checkLimits(&k)
	return errors.Join(k.faults...)
}

// checkPlace checks the directory and each address.
func (c *Config) checkPlace(k *checker) {
	switch {
	case c.Dir == "" && !c.Store.InMemory:
		k.add("Dir", "empty", "name a directory for the node's data")
	case c.Dir != "" && c.Store.InMemory:
		k.add("Dir", "set although Store.InMemory keeps nothing on disk", "drop one of them")
	}
	c.checkLogDir(k)
	if c.Listen != "" || c.HTTP == AutoHTTP {
		c.checkAddr(k, "Listen", c.Listen)
	}
	if c.Advertise != "" {
		c.checkAddr(k, "Advertise", c.Advertise)
		if _, port, err := net.SplitHostPort(c.Advertise); err == nil && port == "0" {
			k.add("Advertise", "port 0 cannot be advertised",
				"name the port that others reach, or leave it empty")
		}
	}
	c.checkListeners(k)
	c.checkHTTP(k)
	c.checkGateway(k)
	c.checkTrace(k)
	k.within("Labels (count)", len(c.Labels), 0, 8)
	for key, value := range c.Labels {
		if key == "" || len(key) > 64 || len(value) > 64 {
			k.add("Labels", fmt.Sprintf("%q=%q: keys hold 1 to 64 bytes, values at most 64", key,
				value), "")
		}
	}
}

// checkLogDir checks that the log's directory is not inside Dir, whose files are the store's.
func (c *Config) checkLogDir(k *checker) {
	if c.LogDir == "" {
		return
	}
	if c.Dir == "" {
		k.add("LogDir", "set without Dir", "name a directory for the node's data too, or drop it")
		return
	}
	dir, err := filepath.Abs(c.Dir)
	log, logErr := filepath.Abs(c.LogDir)
	if err != nil || logErr != nil {
		return // the store reports the error
	}
	if log == dir || strings.HasPrefix(log, dir+string(filepath.Separator)) {
		k.add("LogDir", "the same directory as Dir, or inside of it",
			"name another one, or leave it out: the log is inside of Dir then")
	}
}

// checkHTTP checks the HTTP settings other than the address.
func (c *Config) checkHTTP(k *checker) {
	k.within("HTTPHosts (count)", len(c.HTTPHosts), 0, 64)
	for _, host := range c.HTTPHosts {
		if host == "" || len(host) > 253 || strings.ContainsAny(host, ":/*@ ") {
			k.add("HTTPHosts", fmt.Sprintf("%q is no name of a host", host),
				"give names as they are in URLs, without a port")
		}
	}
	if c.HTTPTLS && c.Certs == "" {
		k.add("HTTPTLS", "set without certificates", "name their folder (--certs), or leave it out")
	}
	if c.Pprof && c.HTTPAddr() == "" {
		k.add("Pprof", "set without an HTTP listener", "give HTTP an address, or leave it out")
	}
}

// checkGateway checks the settings of the gateway other than the address.
func (c *Config) checkGateway(k *checker) {
	if c.Gateway != "" && c.Listen == "" {
		k.add("Gateway", "set without Listen, whose checks of clients it uses", "give Listen an address too")
	}
	k.within("GatewayOrigins (count)", len(c.GatewayOrigins), 0, 64)
	for _, origin := range c.GatewayOrigins {
		u, err := url.Parse(origin)
		if origin != "*" && (err != nil || u.Host == "" || u.Scheme+"://"+u.Host != origin) {
			k.add("GatewayOrigins", fmt.Sprintf("%q is no origin", origin),
				"give scheme://host or scheme://host:port, as browsers send it")
		}
	}
}

// checkTrace checks the export of traces.
func (c *Config) checkTrace(k *checker) {
	if s := c.Trace.Sample; !(s >= 0 && s <= 1) {
		k.add("Trace.Sample", fmt.Sprintf("%v is not between 0 and 1", s),
			"0.01 keeps one trace in a hundred")
	}
	if c.Trace.Endpoint == "" {
		return
	}
	u, err := url.Parse(c.Trace.Endpoint)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Port() == "" {
		k.add("Trace.Endpoint", fmt.Sprintf("%q is no URL of a collector", c.Trace.Endpoint),
			"give http://host:port, or https://host:port for TLS")
	}
}

// checkListeners checks that each listener other than Listen has an address of its own.
func (c *Config) checkListeners(k *checker) {
	taken := map[string]string{c.Listen: "Listen"}
	for _, l := range []struct {
		field, addr, bound string
		offset             int
	}{
		{"Peer", c.Peer, c.PeerAddr(), peerOffset},
		{"Gossip", c.Gossip, c.GossipAddr(), gossipOffset},
		{"HTTP", c.HTTP, c.HTTPAddr(), httpOffset},
		{"Gateway", c.Gateway, c.GatewayAddr(), gatewayOffset},
	} {
		switch {
		case l.bound == "":
			continue // none
		case l.addr == AutoPort:
			if port, err := portOf(c.Listen); err == nil && port > 0xffff-l.offset {
				k.add(l.field, fmt.Sprintf("there is no port %d after Listen's", l.offset), "give "+
					l.field+" an address of its own, or a lower port to Listen")
				continue
			}
		default:
			c.checkAddr(k, l.field, l.addr)
		}
		if other := taken[l.bound]; other != "" && !isPortZero(l.bound) {
			k.add(l.field, "the same address as "+other, "give it another port")
		}
		taken[l.bound] = l.field
	}
}

func (c *Config) checkAddr(k *checker, field, addr string) {
	if _, err := portOf(addr); err != nil {
		k.add(field, err.Error(), "write host:port, such as "+DefaultListen)
	}
}

// Bounds of settings of a cluster.
const (
	maxJoin   = 64
	maxExpect = 64
)

// checkCluster checks the settings by which nodes form a cluster.
func (c *Config) checkCluster(k *checker) {
	k.within("Join (count)", len(c.Join), 0, maxJoin)
	for _, addr := range c.Join {
		port, err := portOf(rpc.WithPort(addr))
		if addr == "" || err != nil || port == 0 || strangeHost(rpc.WithPort(addr)) {
			k.add("Join", fmt.Sprintf("%q is no address of a node", addr),
				"write host or host:port, such as "+DefaultListen)
		}
	}
	k.within("Expect", c.Expect, 0, maxExpect)
	if c.Expect > 1 && len(c.Join) == 0 {
		k.add("Expect", "several nodes shall found a cluster, but Join is empty", "give all of them the same Join (--join)")
	}
	if (len(c.Join) > 0 || c.Expect > 1) && (c.Listen == "" || c.Peer == "" || c.Gossip == "") {
		k.add("Join", "a node of a cluster needs Listen, Peer and Gossip",
			"give all three an address")
	}
	if !slices.Contains([]int{1, 3, 5}, c.Replicas) {
		k.add("Replicas", fmt.Sprintf("%d is none of 1, 3 and 5", c.Replicas), "")
	}
}

// strangeHost reports whether addr is not host:port, or its host contains a colon but is not an
// IPv6 address.
func strangeHost(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err == nil && strings.Contains(host, ":") {
		_, err = netip.ParseAddr(host)
	}
	return err != nil
}

// checkProtection rejects plain text on non-loopback addresses unless InsecureForce or, for HTTP
// next to certificates, InsecureHTTP is set. HTTP over TLS is not plain text, although it requires
// no login without the policy of HTTPLogin.
func (c *Config) checkProtection(k *checker) {
	switch {
	case c.Certs != "" && (c.Insecure || c.InsecureForce):
		k.add("Certs", "certificates and Insecure are both given", "leave one of them out")
		return
	case c.Certs != "":
		addr := c.HTTPAddr()
		if _, err := portOf(addr); err == nil && !c.HTTPTLS && !c.InsecureHTTP && !IsLoopback(addr) {
			k.addKind(ErrUnprotected, "HTTP", addr+
				" is not a loopback address, and HTTP is plain text for everybody",
				"use 127.0.0.1, set HTTPTLS (--http-tls), or set InsecureHTTP (--insecure-http) if the network is trusted")
		}
		return
	case !c.Insecure:
		k.addKind(ErrUnprotected, "Insecure", "neither Certs nor Insecure is set",
			"name a folder of certificates (--certs; `percolator cert` makes one), or serve plain text on a loopback address (--insecure)")
		return
	case c.InsecureForce:
		return
	}
	for _, a := range []struct{ field, addr string }{
		{"Listen", c.Listen}, {"Advertise", c.Advertise}, {"Peer", c.own(c.Peer)},
		{"Gossip", c.own(c.Gossip)}, {"HTTP", c.HTTPAddr()},
		{"Gateway", c.GatewayAddr()},
	} {
		if _, err := portOf(a.addr); err != nil || IsLoopback(a.addr) {
			continue // none, or reported already
		}
		k.addKind(ErrUnprotected, a.field,
			fmt.Sprintf("%s is not a loopback address, and Insecure serves without protection",
				a.addr),
			"use 127.0.0.1, or set InsecureForce (--insecure-force) if the network is trusted")
	}
}

// own returns an explicitly set address, or "" for one derived from Listen, whose faults are
// reported for Listen.
func (*Config) own(addr string) string {
	if addr == AutoPort {
		return ""
	}
	return addr
}

// Bounds of Snapshots.Rate, in bytes per second: at a lower rate a piece would take longer than its
// receiver waits.
const (
	minSnapshotRate = 64 << 10
	maxSnapshotRate = 1 << 40
)

// checkWork checks the settings of actors and jobs.
func (c *Config) checkWork(k *checker) {
	k.within("Scanners", c.Scanners, 0, 256)
	k.within("ObserverWorkers", c.ObserverWorkers, 0, 1<<16)
	k.within("ObserverLoopRuns", c.ObserverLoopRuns, -1, 1<<20)
	k.duration("History", c.History, time.Second, 365*24*time.Hour)
	k.duration("Collection.Interval", c.Collection.Interval, 0, time.Hour)
	k.duration("Collection.ForceAfter", c.Collection.ForceAfter, 0, 365*24*time.Hour)
	if hold := c.Collection.MaxHold; hold != 0 && hold < c.History {
		k.add("Collection.MaxHold", fmt.Sprintf(
			"%v is below the history of %v, which is kept anyway", hold, c.History),
			"raise it, or leave it 0")
	}
	k.duration("Splits.Interval", c.Splits.Interval, 0, time.Hour)
	k.duration("Placement.GoneAfter", c.Placement.GoneAfter, 0, 24*time.Hour)
	k.duration("Placement.ForgetAfter", c.Placement.ForgetAfter, 0, 365*24*time.Hour)
	k.duration("Placement.Interval", c.Placement.Interval, 0, time.Hour)
	k.duration("Placement.Busy", c.Placement.Busy, 0, time.Hour)
	k.duration("Placement.Rest", c.Placement.Rest, 0, 24*time.Hour)
	k.within("Splits.MaxTablets", c.Splits.MaxTablets, 0, 1<<16)
	if rate := c.Snapshots.Rate; rate != 0 && (rate < minSnapshotRate || rate > maxSnapshotRate) {
		k.add("Snapshots.Rate", fmt.Sprintf("%d bytes a second are not between %d and %d", rate,
			minSnapshotRate, uint64(maxSnapshotRate)), "")
	}
	k.within("Snapshots.AtOnce", c.Snapshots.AtOnce, 0, 64)
	k.duration("LockTTL", c.LockTTL, 100*time.Millisecond, time.Hour)
	k.duration("DrainTimeout", c.DrainTimeout, 0, time.Hour)
	k.duration("MaxClockAhead", c.MaxClockAhead, time.Second, time.Hour)
	n := c.Notifications
	k.duration("Notifications.ScanPause", n.ScanPause, time.Millisecond, time.Hour)
	k.within("Notifications.ScanPage", n.ScanPage, 1, 1<<16)
	k.duration("Notifications.ScanPauseMax", n.ScanPauseMax, 0, time.Hour)
	k.duration("Notifications.Young", n.Young, 0, time.Hour)
	k.duration("Notifications.FailurePause", n.FailurePause, 0, time.Hour)
	k.duration("Notifications.FailurePauseMax", n.FailurePauseMax, 0, time.Hour)
	k.batch("Tablet", c.Batch.Tablet)
	k.batch("Oracle", c.Batch.Oracle)
	k.batch("Log", c.Batch.Log)
	k.batch("Lockd", c.Batch.Lockd)
	k.batch("Client", c.Batch.Client)
}

func (c *checker) batch(name string, b BatchConfig) {
	c.within("Batch."+name+".MaxMessages", b.MaxMessages, 0, 1<<20)
	c.within("Batch."+name+".MaxBytes", b.MaxBytes, 0, 64<<20)
	c.within("Batch."+name+".QueueLimit", b.QueueLimit, 0, 1<<24)
	c.duration("Batch."+name+".Linger", b.Linger, 0, time.Minute)
}

// checkLimits checks the size limits; their maxima are those of design section 2.
func (c *Config) checkLimits(k *checker) {
	l := c.Limits
	k.within("Limits.Row", l.Row, 1, 4<<10)
	k.within("Limits.Column", l.Column, 1, 1<<10)
	k.within("Limits.Value", l.Value, 1, 6<<20)
	k.within("Limits.Batch", l.Batch, 1<<10, 8<<20)
	k.within("Limits.Inline", l.Inline, 0, 64<<10)
	if l.Value+l.Row+l.Column > l.Batch {
		k.add("Limits.Batch", "smaller than the largest row, column and value together",
			"raise it or lower Limits.Value")
	}
	if c.Memory != 0 && c.Memory < leastMemory {
		k.add("Memory", fmt.Sprintf("%d bytes are not enough for a node", c.Memory),
			fmt.Sprintf("give it %d at least", uint64(leastMemory)))
	}
	if c.Store.MemTableSize < 0 {
		k.add("Store.MemTableSize", "negative", "")
	}
}

// leastMemory is the minimum of Config.Memory, in bytes.
const leastMemory = 256 << 20

// portOf splits host:port and checks the port.
func portOf(addr string) (int, error) {
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		return 0, fmt.Errorf("%q is not of the form host:port", addr)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%q is not a port number", text)
	}
	return int(port), nil
}

func isPortZero(addr string) bool {
	port, err := portOf(addr)
	return err == nil && port == 0
}
