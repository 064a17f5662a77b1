package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/contiv/netplugin/v2/bench/stats"
)

// report is what one row's run has found. Times are in milliseconds.
type report struct {
	Row     string    `json:"row"`
	Commit  string    `json:"commit"`
	Code    string    `json:"code"` // hash of the code that ran; empty = it was not committed
	Date    time.Time `json:"date"`
	Seconds int       `json:"seconds"` // how long components were killed
	Machine string    `json:"machine"`
	Load    [2]string `json:"load"` // of the machine before and after: 1, 5, 15 minutes
	Busy    bool      `json:"busy"` // others worked on the machine: times are not fair

	Kills int   `json:"kills"`
	Back  int64 `json:"longestBackMs"` // from a kill until the component was back

	traffic
	requests
	attachments

	Leaks []string `json:"leaks"` // what is there after all churn has been deleted, and was not before
}

// traffic is how the flows fared.
type traffic struct {
	Sent   int `json:"packetsSent"`
	Lost   int `json:"packetsLost"`
	During int `json:"packetsLostWhileAway"` // of these, those on their way at a kill, or sent from then until half a second after the component was back
	// Outages are of each kill the milliseconds until the component was back, and until the
	// last packet was sent that was lost, 0 = none was; Later are packets lost outside of
	// these times, a few at most.
	Outages [][2]int64 `json:"outagesMs,omitempty"`
	Later   []string   `json:"lostLater,omitempty"`
	Gap     int64      `json:"longestGapMs"` // between two answered packets with lost ones between them
	Broken  int        `json:"connectionsBroken"`
}

// requests are what was asked of netmaster's API.
type requests struct {
	Requests int      `json:"apiRequests"`
	Failed   int      `json:"apiFailed"`
	Refusal  int64    `json:"longestRefusalMs"`
	Errors   []string `json:"apiErrors,omitempty"` // the first of each kind
}

// attachments are the containers, or pods, that were added to hosts.
type attachments struct {
	Adds      int      `json:"adds"`
	AddFailed int      `json:"addsFailed"`
	Add       int64    `json:"longestAddMs"`   // one call that succeeded
	Added     int64    `json:"longestAddedMs"` // from the first call until one succeeded
	AddErrors []string `json:"addErrors,omitempty"`
}

// begin makes a row's report with what it is about.
func begin(ctx context.Context, row, code string) *report {
	return &report{
		Row: row, Commit: stats.Commit(ctx), Code: code, Date: time.Now().UTC().Truncate(time.Second),
		Machine: stats.Machine(ctx),
		Load:    [2]string{stats.Load()}, Leaks: []string{},
	}
}

// read returns the reports of a directory by row.
func read(dir string) (map[string]report, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	out := map[string]report{}
	for _, f := range files {
		var r report
		b, err := os.ReadFile(f)
		if err == nil {
			err = json.Unmarshal(b, &r)
		}
		if err == nil && r.Row+".json" != filepath.Base(f) {
			err = fmt.Errorf("it is of row %q", r.Row)
		}
		if err != nil {
			return nil, fmt.Errorf("report %s: %w", f, err)
		}
		out[r.Row] = r
	}
	return out, nil
}
