package membership

// local is this member's process: its configuration, its directory, its etcd and the
// authority of members. The other parts of a Member share it.
type local struct {
	cfg    Config
	dir    *directory
	peers  *peers
	server *server
}
