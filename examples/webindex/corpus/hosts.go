package corpus

import (
	"fmt"
	"hash/fnv"
	"html"
	"maps"
	"slices"
	"strings"
)

// The two hosts of the default corpus, which are its top directories.
const (
	MainHost   = "go.example"
	MirrorHost = "mirror.example"
)

// Of the packages, one in mirrorShare is mirrored whole; of the other packages' symbols,
// one in stubShare has a stub on the mirror. newsPages link to mirrored pages, so that
// some of the mirror's copies are the more popular ones.
const (
	mirrorShare = 6
	stubShare   = 8
	newsPages   = 300
	newsLinks   = 4
)

// site collects a whole corpus in memory, by path below the root.
type site struct {
	all   map[string]*pkg
	files map[string][]byte
}

// pick returns a pseudo-random number below n that depends only on name, so that adding a package
// does not change the choices for others.
func pick(name string, n int) int {
	h := fnv.New64a()
	h.Write([]byte(name))
	x := h.Sum64()
	return int((x ^ x>>29) % uint64(n))
}

// stub returns a redirect stub of the usual form, with a link for clients that do not follow the
// redirect.
func stub(target string) []byte {
	t := html.EscapeString(target)
	return []byte("<!DOCTYPE html>\n<html><head><meta http-equiv=\"refresh\" content=\"0; url=" +
		t + "\">" +
		"<title>Moved</title></head>\n<body>Moved to <a href=\"" + t + "\">" + t +
		"</a>.</body></html>\n")
}

// newSite renders the documentation for the main host and adds the other pages.
func newSite(all map[string]*pkg) (*site, error) {
	s := &site{all: all, files: map[string][]byte{}}
	r := renderer{all: all, emit: func(rel string, content []byte) {
		s.files[MainHost+"/"+rel] = content
	}}
	if err := r.documentation(); err != nil {
		return nil, err
	}
	mirrored := s.mirror()
	s.news(mirrored)
	s.shortcuts()
	s.loops()
	return s, nil
}

// mirror fills the second host: whole packages, byte by byte, and stubs for parts of the
// others. It returns the paths (below the host) of the mirrored pages, sorted.
func (s *site) mirror() []string {
	var mirrored []string
	for _, path := range slices.Sorted(maps.Keys(s.all)) {
		p, dir := s.all[path], pkgDir(path)+"/"
		whole := pick(path, mirrorShare) == 0
		pages := []string{"index.html"}
		for sym := range p.symbols() {
			if whole || pick(path+"."+sym.name, stubShare) == 0 {
				pages = append(pages, p.file[sym.name])
			}
		}
		for _, name := range pages {
			rel := dir + name
			if !whole {
				s.files[MirrorHost+"/"+rel] = stub("http://" + MainHost + "/" + rel)
				continue
			}
			s.files[MirrorHost+"/"+rel] = s.files[MainHost+"/"+rel]
			mirrored = append(mirrored, rel)
		}
	}
	slices.Sort(mirrored)
	return mirrored
}

// news adds pages that exist only on the mirror and link to its copies.
func (s *site) news(mirrored []string) {
	var list strings.Builder
	list.WriteString("<h1>Mirror</h1>\n<ul>\n")
	for i := range newsPages {
		rel := fmt.Sprintf("news/%03d.html", i)
		var b strings.Builder
		fmt.Fprintf(&b, "<nav>%s</nav>\n<h1>News %d</h1>\n<p>Worth reading:</p>\n<ul>\n",
			anchor("../index.html", "Mirror"), i)
		for k := range newsLinks {
			target := mirrored[pick(fmt.Sprint(rel, k), len(mirrored))]
			text := strings.TrimSuffix(strings.TrimPrefix(target, "pkg/"), ".html")
			fmt.Fprintf(&b, "<li>%s</li>\n",
				anchor("../"+target, fmt.Sprintf("%s, item %d", text, k+1)))
		}
		b.WriteString("</ul>\n")
		s.files[MirrorHost+"/"+rel] = document(fmt.Sprintf("News %d", i), b.String())
		fmt.Fprintf(&list, "<li>%s</li>\n", anchor(rel, fmt.Sprintf("News %d", i)))
	}
	s.files[MirrorHost+"/index.html"] = document("Mirror", list.String()+"</ul>\n"+
		anchor("http://"+MainHost+"/", "The original"))
}

// shortcuts adds stubs on the main host: /s/fmt.html redirects to the package's page,
// /old/fmt.html to /s/fmt.html.
func (s *site) shortcuts() {
	var list strings.Builder
	list.WriteString("<h1>Shortcuts</h1>\n<ul>\n")
	for _, path := range slices.Sorted(maps.Keys(s.all)) {
		name := strings.ReplaceAll(path, "/", "-") + ".html"
		s.files[MainHost+"/s/"+name] = stub("../" + pkgDir(path) + "/index.html")
		s.files[MainHost+"/old/"+name] = stub("../s/" + name)
		fmt.Fprintf(&list, "<li>%s, formerly %s</li>\n", anchor(name, path),
			anchor("../old/"+name, "old "+path))
	}
	s.files[MainHost+"/s/index.html"] = document("Shortcuts", list.String()+"</ul>\n"+
		anchor("../odd/index.html", "Odd ones")+"\n")
}

// loops adds unusual redirects: a loop of three with a page that redirects into it, a page that
// redirects to itself, two whose targets do not exist, and a chain longer than the limit of
// redirects.
func (s *site) loops() {
	const chain = 24
	odd := MainHost + "/odd/"
	s.files[odd+"a.html"], s.files[odd+"b.html"], s.files[odd+"c.html"] = stub("b.html"),
		stub("c.html"), stub("a.html")
	s.files[odd+"in.html"] = stub("c.html")
	s.files[odd+"self.html"] = stub("self.html")
	s.files[odd+"gone1.html"], s.files[odd+"gone2.html"] = stub("gone.html"),
		stub("http://nowhere.example/")
	for i := range chain {
		s.files[fmt.Sprintf("%schain%02d.html", odd, i)] = stub(fmt.Sprintf("chain%02d.html", i+1))
	}
	s.files[fmt.Sprintf("%schain%02d.html", odd, chain)] = document("End of the chain",
		"<p>The end.</p>\n")
	var list strings.Builder
	for _, file := range slices.Sorted(maps.Keys(s.files)) {
		if name, ok := strings.CutPrefix(file, odd); ok {
			fmt.Fprintf(&list, "<p>%s</p>\n", anchor(name, "odd "+name))
		}
	}
	s.files[odd+"index.html"] = document("Odd ones", list.String())
}
