package site

import (
	"context"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// The site, and the accessibility checks of axe-core, as tools/site.sh makes them.
const (
	siteDir = "../../bin/site"
	axeFile = "../../bin/site-work/node_modules/axe-core/axe.min.js"
)

// pageTime is how long a page may take on a busy machine.
const pageTime = time.Minute

// browser is a headless Chromium with what its pages complained about.
type browser struct {
	ctx    context.Context
	origin string

	mu     sync.Mutex
	faults []string // since the last page was opened
}

func startBrowser(t *testing.T, origin string) *browser {
	t.Helper()
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), chromedp.ExecPath("/usr/bin/chromium"), chromedp.Headless, chromedp.NoSandbox)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &browser{ctx: ctx, origin: origin}
	err := chromedp.Do(ctx) // it starts
	if err == nil {
		err = chromedp.Listen(ctx, b.listen)
	}
	if err == nil {
		_, err = chromedp.Call(ctx, network.Enable, network.EnableParams{})
	}
	if err == nil {
		_, err = chromedp.Call(ctx, log.Enable, cdp.Empty{})
	}
	if err != nil {
		t.Fatalf("start Chromium: %v", err)
	}
	return b
}

func (b *browser) listen(event any) {
	text := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text = "exception: " + e.ExceptionDetails.Text
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			text = "error: " + e.Entry.Text + " " + e.Entry.URL
		}
	case *network.EventRequestWillBeSent:
		if u := e.Request.URL; !strings.HasPrefix(u, b.origin) && !strings.HasPrefix(u, "data:") {
			text = "request to another server: " + u
		}
	}
	if text != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.faults = append(b.faults, text)
	}
}

func (b *browser) takeFaults() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	faults := b.faults
	b.faults = nil
	return faults
}

// visit opens a page in a window and evaluates a script there.
func visit[T any](b *browser, page string, width int64, script string) (result T, err error) {
	ctx, cancel := context.WithTimeout(b.ctx, pageTime)
	defer cancel()
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, 800), chromedp.Navigate(b.origin+"/"+page), chromedp.WaitReady(chromedp.CSS("main"))); err != nil {
		return result, err
	}
	return chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
}

// seen is what a page tells of itself.
type seen struct {
	IDs        []string `json:"ids"`
	Links      []string `json:"links"`
	Violations []string `json:"violations"` // of accessibility, serious and worse
}

const look = `(async () => {
	const found = await axe.run(document, {resultTypes: ['violations']})
	return {
		ids: [...document.querySelectorAll('[id]')].map((e) => e.id),
		links: [...document.querySelectorAll('a[href]')].map((e) => e.href),
		violations: found.violations.filter((v) => ['serious', 'critical'].includes(v.impact)).map((v) => v.id + ': ' + v.nodes[0].html),
	}
})()`

// width is how wide a page is that does not fit its window.
const width = `(async () => document.documentElement.scrollWidth)()`

func TestEveryPageCanBeRead(t *testing.T) {
	axe, err := os.ReadFile(axeFile)
	if err != nil {
		t.Fatalf("make docs makes the site first: %v", err)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(siteDir)))
	t.Cleanup(server.Close)
	b := startBrowser(t, server.URL)

	pages := map[string]seen{}
	err = filepath.WalkDir(siteDir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".html" || filepath.Base(path) == "404.html" {
			return err
		}
		page, err := filepath.Rel(siteDir, path)
		if err != nil {
			return err
		}
		s, err := visit[seen](b, page, 1280, string(axe)+";"+look)
		if err != nil {
			t.Errorf("%s: %v", page, err)
			return nil
		}
		pages[page] = s
		for _, v := range s.Violations {
			t.Errorf("%s: not accessible: %s", page, v)
		}
		if wide, err := visit[int](b, page, 360, width); err != nil {
			t.Errorf("%s: %v", page, err)
		} else if wide > 360 {
			t.Errorf("%s: %d pixels wide in a window of 360", page, wide)
		}
		for _, f := range b.takeFaults() {
			t.Errorf("%s: %s", page, f)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(pages) < 70 {
		t.Errorf("the site has %d pages", len(pages))
	}
	for page, s := range pages {
		for _, l := range s.Links {
			if why := broken(pages, server.URL, l); why != "" {
				t.Errorf("%s: %s: %s", page, l, why)
			}
		}
	}
}

// broken returns why a link within the site leads nowhere.
func broken(pages map[string]seen, origin, link string) string {
	u, err := url.Parse(link)
	if err != nil {
		return err.Error()
	}
	if !strings.HasPrefix(link, origin) {
		return ""
	}
	page := strings.TrimPrefix(u.Path, "/")
	if page == "" || strings.HasSuffix(page, "/") {
		page += "index.html"
	}
	to, there := pages[page]
	switch {
	case !there:
		return "there is no such page"
	case u.Fragment != "" && !slices.Contains(to.IDs, u.Fragment):
		return "the page has no such heading"
	}
	return ""
}

// TestSearchFindsAPage types a word that users search for.
func TestSearchFindsAPage(t *testing.T) {
	server := httptest.NewServer(http.FileServer(http.Dir(siteDir)))
	t.Cleanup(server.Close)
	b := startBrowser(t, server.URL)
	ctx, cancel := context.WithTimeout(b.ctx, pageTime)
	defer cancel()
	err := chromedp.Do(ctx, chromedp.EmulateViewport(1280, 800), chromedp.Navigate(server.URL),
		chromedp.Click(chromedp.CSS(".DocSearch-Button"), chromedp.NodeVisible),
		chromedp.SendKeys(chromedp.CSS("#localsearch-input"), "rollback", chromedp.NodeVisible),
		chromedp.WaitVisible(chromedp.CSS(".VPLocalSearchBox a.result")))
	if err != nil {
		t.Fatal(err)
	}
	found, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](`[...document.querySelectorAll('.VPLocalSearchBox a.result')].map((e) => e.href)`))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(found, func(l string) bool {
		return strings.Contains(l, "/how-to/upgrade") || strings.Contains(l, "/how-to/confirm")
	}) {
		t.Errorf("a search for rollback finds %q", found)
	}
}
