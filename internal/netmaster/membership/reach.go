package membership

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

// walDir is where etcd keeps its log below a data directory: only who has one has
// taken part in a cluster.
func walDir(dir string) string { return filepath.Join(dir, "member", "wal") }

// Reach is how far the data of a directory go. Of members that were lost together the
// one that reaches farthest has all that their majority committed.
type Reach struct {
	Term, Index uint64
	Members     int  // of the cluster as far as the data tell, learners included
	Votes       bool // the member knew that it has a vote: a learner's data are of no use to Recover
}

// Compare is -1 where r reaches less far than o, 1 where it reaches farther.
func (r Reach) Compare(o Reach) int {
	return cmp.Or(cmp.Compare(r.Term, o.Term), cmp.Compare(r.Index, o.Index))
}

// ReachOf reads how far a directory of a member that does not run goes. Nothing is
// changed.
func ReachOf(dir string) (r Reach, err error) {
	fail := func(err error) (Reach, error) {
		return Reach{}, fmt.Errorf("read the revision of the data in %s: %w", dir, err)
	}
	log := zap.NewNop()
	snaps, err := wal.ValidSnapshotEntries(log, walDir(dir))
	if err != nil {
		return fail(err)
	}
	if len(snaps) == 0 { // etcd begins each log with one
		return fail(errors.New("the log's beginning is missing; restore a snapshot"))
	}
	last := snaps[len(snaps)-1]
	w, err := wal.OpenForRead(log, walDir(dir), last)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = w.Close() }() // of what was only read
	meta, hard, entries, err := w.ReadAll()
	if err != nil {
		return fail(err)
	}
	var self pb.Metadata
	if err := proto.Unmarshal(meta, &self); err != nil {
		return fail(err)
	}
	r = Reach{Term: last.GetTerm(), Index: last.GetIndex()}
	members := map[uint64]bool{}
	for _, id := range slices.Concat(last.GetConfState().GetVoters(), last.GetConfState().GetLearners()) {
		members[id] = true
	}
	for _, id := range last.GetConfState().GetVoters() {
		r.Votes = r.Votes || id == self.GetNodeID()
	}
	for _, e := range entries {
		r.Term, r.Index = e.GetTerm(), e.GetIndex()
		if e.GetType() != raftpb.EntryConfChange || e.GetIndex() > hard.GetCommit() {
			continue
		}
		var c raftpb.ConfChange
		if err := proto.Unmarshal(e.GetData(), &c); err != nil {
			return fail(err)
		}
		if members[c.GetNodeId()] = true; c.GetType() == raftpb.ConfChangeRemoveNode {
			delete(members, c.GetNodeId())
		}
		if c.GetNodeId() == self.GetNodeID() {
			r.Votes = c.GetType() == raftpb.ConfChangeAddNode || r.Votes && c.GetType() == raftpb.ConfChangeUpdateNode
		}
	}
	r.Members = len(members)
	return r, nil
}
