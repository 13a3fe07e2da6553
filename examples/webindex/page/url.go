package page

import (
	"net/url"
	"path"
	"strings"
)

// Normalize is the normal form of an absolute http or https URL: scheme "http", host in
// lower case without the default port, no user, no fragment, dots resolved, "index.html"
// where the path ends in a slash. ok is false for anything else and beyond MaxURL.
func Normalize(raw string) (normal string, ok bool) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", false
	}
	return normalize(u)
}

// resolve is the normal form of a reference found in a page.
func resolve(base *url.URL, ref string) (string, bool) {
	u, err := base.Parse(strings.TrimSpace(ref))
	if err != nil {
		return "", false
	}
	return normalize(u)
}

func normalize(u *url.URL) (string, bool) {
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Opaque != "" {
		return "", false
	}
	host := strings.ToLower(u.Host)
	for _, port := range []string{":80", ":443", ":"} {
		host = strings.TrimSuffix(host, port)
	}
	p := path.Clean("/" + u.Path)
	if strings.HasSuffix(u.Path, "/") || u.Path == "" || p == "/" {
		p = strings.TrimSuffix(p, "/") + "/index.html"
	}
	n := url.URL{Scheme: "http", Host: host, Path: p, RawQuery: u.RawQuery}
	s := n.String()
	if len(s) > MaxURL || strings.ContainsFunc(s, unsafe) {
		return "", false
	}
	return s, true
}

// unsafe are the characters that row keys need for themselves (invariant 3).
func unsafe(r rune) bool { return r <= ' ' || r == 0x7f }

// FileURL is the URL of the file at the slash-separated path rel below the tree's root:
// its first element is the host. ok is false for what is not a page by its name: no host,
// not .html or .htm, a host that is none, a URL beyond MaxURL.
func FileURL(rel string) (string, bool) {
	host, rest, found := strings.Cut(rel, "/")
	ext := strings.ToLower(path.Ext(rest))
	if !found || host == "" || (ext != ".html" && ext != ".htm") {
		return "", false
	}
	u := url.URL{Scheme: "http", Host: host, Path: "/" + rest}
	if parsed, err := url.Parse(u.String()); err != nil || parsed.Host != host {
		return "", false
	}
	return normalize(&u)
}
