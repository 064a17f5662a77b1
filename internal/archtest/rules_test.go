package archtest

// module is the module's path; rules name packages relative to it.
const module = "github.com/contiv/netplugin/v2/"

// rule says which packages of the module a package may import outside its
// tests, and why no others.
type rule struct {
	pkg string   // relative to the module; "x/*" stands for the packages right below x and all below those
	may []string // likewise; anything: nil and free
	why string
	// free packages may import every package of the module.
	free bool
}

// rules are docs/design's "who may import whom". The first that fits a package
// holds, so that exceptions stand before what they are exceptions to.
var rules = []rule{
	{pkg: "api", why: "wire shapes and client are importable by others: standard library only"},
	{pkg: "internal/model", why: "values of the domain depend on nothing, so that everything can depend on them"},
	{pkg: "internal/waiting", why: "how goroutines wait, whatever for"},
	{pkg: "internal/reconcile", may: []string{"internal/waiting"}, why: "a generic runner that knows no networking"},
	{pkg: "internal/durable", why: "writes bytes; contivk8s is made of it"},
	{pkg: "internal/covering", why: "chooses rows of any test"},
	{pkg: "internal/checksum", why: "sums bytes, whatever they are"},
	{pkg: "internal/filelock", why: "takes locks, of whatever"},
	{pkg: "internal/places", why: "counts places, of whatever"},
	{pkg: "internal/token", why: "what lets a client in knows neither client nor server"},
	{pkg: "internal/access/refusal", may: []string{"api", "internal/model"}, why: "how to say no knows nothing that is refused"},
	{pkg: "internal/access/audit", why: "writes lines, and asks nobody what is in them"},
	{pkg: "internal/access/origin", why: "guards any listener from browsers, and knows none of its clients"},
	{pkg: "internal/strictjson", may: []string{"internal/model"}, why: "reads JSON of any client, and knows none of its fields"},
	{pkg: "internal/access/limit", may: []string{"internal/access/refusal", "internal/places"}, why: "limits any listener's clients, and knows none of them"},
	{pkg: "internal/access/token", may: []string{"internal/access", "internal/access/refusal", "internal/model", "internal/store", "internal/store/tables"}, why: "one way of knowing who asks; the store is given to it"},
	{pkg: "internal/access/oidc", may: []string{"internal/access", "internal/access/refusal"}, why: "one way of knowing who asks, with nothing of its own in the store"},
	{pkg: "internal/access", may: []string{"api", "internal/access/audit", "internal/access/refusal", "internal/model", "internal/pki"}, why: "identifies clients and decides; it is told what a request is about, and reads none"},
	{pkg: "internal/pki", may: []string{"internal/durable"}, why: "makes certificates and knows no connection"},
	{pkg: "internal/transport", may: []string{"internal/pki", "internal/places"}, why: "which end of a connection uses which TLS knows no program"},
	{pkg: "internal/daemon", may: []string{"internal/access/limit", "internal/access/origin", "internal/transport"}, why: "what surrounds any long-running program knows no program"},

	{pkg: "internal/condition", may: []string{"api"}, why: "the registry of what can be wrong checks nothing itself"},
	{pkg: "internal/bundle", may: []string{"api"}, why: "packs what others read, and knows no program"},

	{pkg: "internal/ipam", may: []string{"internal/model"}, why: "allocators are pure: no store, no wire"},
	{pkg: "internal/desired", may: []string{"internal/model"}, why: "the picture of a host is data only"},
	{pkg: "internal/store", may: []string{"internal/model", "internal/waiting"}, why: "the contract knows keys and values, no rows and no use-cases"},
	{pkg: "internal/store/engine", may: []string{"internal/model", "internal/store", "internal/waiting"}, why: "transactions stand on any backend and know no rows"},
	{pkg: "internal/store/tables", may: []string{"internal/model", "internal/store"}, why: "rows stand on the contract"},
	{pkg: "internal/store/cluster", may: []string{"internal/model", "internal/store", "internal/store/tables", "internal/transport", "internal/waiting"}, why: "election and registry stand on the contract, so they work on every store"},
	{
		pkg: "internal/store/storetest", may: []string{"internal/model", "internal/store", "internal/store/cluster", "internal/store/engine", "internal/store/tables"},
		why: "one conformance suite for all stores knows none of them",
	},
	{pkg: "internal/store/relay", may: []string{"api", "internal/strictjson", "internal/model", "internal/store", "internal/waiting"}, why: "hands mirrors on, of any store, whatever rows mean; its messages are of the REST interface"},
	{
		pkg: "internal/store/*", may: []string{"internal/durable", "internal/filelock", "internal/model", "internal/store", "internal/store/engine", "internal/store/tables", "internal/transport", "internal/waiting"},
		why: "a concrete store knows the contract, and is a backend of the engine",
	},
	{pkg: "internal/join/ticket", may: []string{"internal/model"}, why: "hosts have it too, and no etcd"},
	{pkg: "internal/pki/pkitest", may: []string{"internal/pki"}, why: "is for tests of whatever has certificates"},
	{pkg: "internal/enroll", may: []string{"internal/durable", "internal/join/ticket", "internal/model", "internal/pki", "internal/transport"}, why: "a host gets a certificate, whatever for, and without etcd"},
	{pkg: "internal/join", may: []string{"internal/durable", "internal/strictjson", "internal/filelock", "internal/join/ticket", "internal/model", "internal/pki", "internal/places", "internal/store", "internal/store/etcd", "internal/store/tables", "internal/transport"}, why: "members are etcd's own matter: it knows that one store, and no program"},
	{pkg: "internal/compile", may: []string{"internal/model", "internal/desired"}, why: "compile is a pure function of the cluster's state"},
	{pkg: "internal/control", may: []string{"internal/condition", "internal/model", "internal/ipam", "internal/store", "internal/store/cluster", "internal/store/engine", "internal/store/relay", "internal/store/tables", "internal/waiting"}, why: "use-cases know neither wire shapes nor hosts"},
	{
		pkg: "internal/apiserver", may: []string{"api", "internal/access", "internal/access/audit", "internal/access/origin", "internal/access/refusal", "internal/strictjson", "internal/bundle", "internal/condition", "internal/model", "internal/control", "internal/compile", "internal/desired", "internal/oracle", "internal/wire"},
		why: "HTTP is a thin adapter on use-cases; it asks control, never the store",
	},
	{pkg: "internal/wire", may: []string{"api", "internal/model"}, why: "makes values of what is on the wire, and asks nobody"},
	{pkg: "internal/kube", may: []string{"internal/model"}, why: "what Kubernetes' objects mean is pure: no watch, no store"},
	{pkg: "internal/kube/kubetest", why: "a judge of policies that shares nothing with what it judges"},
	{pkg: "internal/kube/objects", may: []string{"api", "internal/model", "internal/wire"}, why: "what Contiv's own objects are and mean is pure: no watch, no store"},
	{pkg: "internal/kube/apiclient", why: "a way to an API server knows nothing of what is asked"},
	{pkg: "internal/kube/mirror", may: []string{"internal/kube/apiclient", "internal/kube/objects", "internal/model", "internal/waiting"}, why: "a copy of the API server's objects gives them no meaning"},
	{pkg: "internal/kube/account", may: []string{"internal/kube/apiclient", "internal/model"}, why: "whose token it is, the API server says, and what that is good for is another's matter"},
	{pkg: "internal/kube/anchor", may: []string{"internal/kube/apiclient", "internal/model", "internal/waiting"}, why: "a file is to be in a ConfigMap: whose authority that is and what it is good for is another's matter"},
	{pkg: "internal/kube/notice", may: []string{"internal/kube", "internal/kube/apiclient", "internal/kube/objects", "internal/waiting"}, why: "what became of an object is told to it, by nobody asked"},
	{pkg: "internal/kube/keeper", may: []string{"internal/control", "internal/kube", "internal/kube/mirror", "internal/kube/objects", "internal/model", "internal/store", "internal/waiting"}, why: "an orchestrator is a thin adapter on use-cases"},

	{pkg: "internal/driver", may: []string{"internal/desired", "internal/model"}, why: "a driver gets data, not ids: it never reaches back into the database"},
	{pkg: "internal/oracle", may: []string{"internal/driver", "internal/desired", "internal/model"}, why: "the reference data plane is made of the contract and the picture: netmaster asks it too"},
	{
		pkg: "internal/driver/drivertest", may: []string{"internal/compile", "internal/covering", "internal/driver", "internal/driver/shape", "internal/desired", "internal/model", "internal/oracle", "internal/reconcile"},
		why: "one conformance suite for all drivers knows none of them",
	},
	{
		pkg: "internal/driver/*", may: []string{"internal/checksum", "internal/driver", "internal/driver/shape", "internal/desired", "internal/filelock", "internal/model", "internal/reconcile", "internal/waiting"},
		why: "a concrete driver makes the host look like the picture, and knows nothing else",
	},
	{pkg: "internal/dns", may: []string{"internal/desired", "internal/model", "internal/places"}, why: "fed by desired.DNS"},
	{pkg: "internal/aci/acitest", why: "simulates what package aci talks to, and must not share a misreading with it"},
	{pkg: "internal/aci", may: []string{"api", "internal/model", "internal/waiting"}, why: "keeps a fabric as it is told, and knows no store"},
	{pkg: "internal/aci/keeper", may: []string{"internal/aci", "internal/control", "internal/model", "internal/store", "internal/store/tables", "internal/waiting"}, why: "a thin adapter on use-cases: it chooses nothing"},
	{pkg: "internal/bgp", may: []string{"internal/desired", "internal/model", "internal/waiting"}, why: "fed by desired.BGP"},

	{pkg: "internal/attach/*", may: []string{"internal/attach", "internal/model"}, why: "namespace plumbing knows requests and results only"},
	{pkg: "internal/attach", may: []string{"internal/durable", "internal/model"}, why: "runtimes' requests know no agent: contivk8s stays small"},
	{
		pkg: "internal/agent/picture",
		may: []string{
			"internal/model", "internal/store", "internal/store/cluster", "internal/store/tables", "internal/compile", "internal/desired",
			"internal/driver", "internal/waiting", "internal/attach", "internal/attach/plumb", "internal/durable", "internal/hostnet",
		},
		why: "what a host should look like needs neither a netmaster nor to know how containers are attached",
	},
	{
		pkg: "internal/agent/netmaster", may: []string{"api", "internal/model", "internal/store", "internal/store/cluster", "internal/attach", "internal/waiting"},
		why: "the way to netmaster knows neither attachments nor pictures",
	},
	{pkg: "internal/agent/answering", may: []string{"internal/checksum", "internal/model", "internal/waiting"}, why: "who answers neighbours knows neither services nor netmaster"},
	{pkg: "internal/agent/tunnelprobe", may: []string{"internal/model", "internal/desired", "internal/driver", "internal/waiting"}, why: "who tests tunnels knows neither the store nor which driver there is"},
	{pkg: "internal/agent/probing", may: []string{"internal/model"}, why: "who asks hosts knows neither the store nor services"},
	{pkg: "internal/multicast", may: []string{"internal/checksum", "internal/desired", "internal/driver", "internal/durable", "internal/model", "internal/waiting"}, why: "who hears what is one host's own matter: it knows neither the store nor netmaster"},
	{
		pkg: "internal/agent/fabric",
		may: []string{"internal/bgp", "internal/compile", "internal/desired", "internal/durable", "internal/hostnet", "internal/model", "internal/store/tables", "internal/waiting"},
		why: "the speaker and the host's stack are told what a host has; who knows it is another",
	},
	{
		pkg: "internal/agent/attachment",
		may: []string{
			"api", "internal/model", "internal/store", "internal/store/tables", "internal/compile", "internal/desired", "internal/driver", "internal/waiting",
			"internal/attach", "internal/attach/plumb", "internal/durable", "internal/hostnet", "internal/agent/netmaster", "internal/agent/picture",
		},
		why: "attachments know the picture and netmaster, not who runs them",
	},
	{
		pkg: "internal/agent/observe",
		may: []string{
			"api", "internal/model", "internal/store", "internal/store/cluster", "internal/store/tables", "internal/desired", "internal/driver", "internal/waiting",
			"internal/attach", "internal/attach/plumb", "internal/agent/attachment", "internal/agent/netmaster", "internal/agent/picture", "internal/bundle", "internal/condition", "internal/pki",
		},
		why: "who tells of a host decides nothing",
	},
	{
		pkg: "internal/agent",
		may: []string{
			"api", "internal/access/limit", "internal/access/origin", "internal/strictjson", "internal/model", "internal/store", "internal/store/cluster", "internal/store/relay", "internal/store/tables", "internal/compile", "internal/desired", "internal/driver",
			"internal/agent/*", "internal/bundle", "internal/multicast", "internal/reconcile", "internal/waiting", "internal/attach", "internal/attach/*", "internal/durable", "internal/filelock", "internal/hostnet", "internal/dns", "internal/bgp", "internal/transport",
		},
		why: "the agent never imports control (it asks a netmaster by REST), and gets its store and driver from cmd",
	},
	{pkg: "internal/hostnet", may: []string{"internal/attach", "internal/desired", "internal/model"}, why: "the host's stack knows private addresses and ports, nothing of the cluster"},
	{pkg: "internal/cni", may: []string{"internal/attach", "internal/model"}, why: "the plugin hands verbs to netplugin by attach's client, nothing more"},
	{pkg: "internal/cni/place", may: []string{"internal/durable", "internal/model"}, why: "puts files where runtimes look, nothing more"},
	{pkg: "internal/cni/serve", may: []string{"internal/attach", "internal/cni", "internal/model"}, why: "verbs become attach requests, and kinds of error become codes, nothing more"},
	{pkg: "internal/mesos", may: []string{"internal/attach", "internal/cni", "internal/cni/serve"}, why: "1.x's calls become invocations of the CNI plugin, nothing more"},
	{pkg: "internal/libnetwork", may: []string{"internal/attach", "internal/durable", "internal/model", "internal/waiting"}, why: "verbs become attach requests, nothing more"},
	{pkg: "internal/cli", may: []string{"api", "internal/attach", "internal/bundle", "internal/condition", "internal/durable", "internal/pki", "internal/token", "internal/transport"}, why: "netctl can do what any client of the REST interface, and of netplugin's socket, can"},

	{pkg: "internal/lab", free: true, why: "simulated hosts are made of everything, concrete stores and drivers included"},
	{pkg: "internal/lab/*", free: true, why: "what simulated hosts run beside Contiv"},
	{pkg: "internal/netnstest", why: "around the tests of any package"},
	{pkg: "internal/effecttest", why: "around the tests of any package"},
	{pkg: "internal/archtest", why: "has tests only"},
	{pkg: "cmd/*", free: true, why: "flags, wiring, run: the only place that picks a concrete store or driver"},
	{pkg: "test/*", free: true, why: "suites that need the real thing"},
	{pkg: "packaging/*", why: "packs what others have built"},
	{pkg: "bench/*", free: true, why: "benchmark programs"},
}

// standardOnly may import nothing but the standard library and each other.
var standardOnly = map[string]string{
	"api":               "others import it; it must not drag anything in",
	"internal/model":    "parsing and invariants need no library",
	"internal/desired":  "data only",
	"internal/ipam":     "pure",
	"internal/durable":  "linked into contivk8s",
	"internal/filelock": "imported from many places",
	"internal/token":    "linked into netctl",
	"internal/waiting":  "imported from everywhere",
	"internal/attach":   "linked into contivk8s, which a runtime starts for every container",
	"internal/archtest": "has tests only",
}

// importedBy says which packages alone may import a library.
var importedBy = []struct {
	prefix string // of import paths
	may    []string
	why    string
}{
	{
		"k8s.io/client-go",
		[]string{"internal/kube/apiclient", "internal/kube/mirror", "internal/kube/notice", "internal/kube/account", "internal/kube/anchor", "cmd/netmaster", "test/*", "bench/*"},
		"netmaster alone talks to Kubernetes' API server",
	},
}

// unlinked says what a binary must not contain, directly or not.
var unlinked = []struct {
	binary string
	prefix string // of import paths, the module's own included
	why    string
}{
	{"cmd/contivk8s", "go.etcd.io/", "started for every container: small, talks to netplugin only"},
	{"cmd/contivk8s", "github.com/ovn-kubernetes/", "started for every container: small, talks to netplugin only"},
	{"cmd/contivk8s", "google.golang.org/grpc", "started for every container: small, talks to netplugin only"},
	{"cmd/contivk8s", module + "internal/cni/serve", "what understands configurations is in netplugin, whose tables are made"},
	{"cmd/contivk8s", module + "internal/cni/place", "it is installed by netplugin"},
	{"cmd/contivk8s", module + "internal/agent", "started for every container: small, talks to netplugin only"},
	{"cmd/contivk8s", module + "internal/store", "started for every container: small, talks to netplugin only"},
	{"cmd/contivk8s", "k8s.io/", "started for every container: small, talks to netplugin only"},
	{"cmd/netplugin", "k8s.io/a", "hosts learn from the store: no netplugin watches an API server"},
	{"cmd/netplugin", "k8s.io/client-go", "hosts learn from the store: no netplugin watches an API server"},
	{"cmd/netplugin", "sigs.k8s.io/network-policy-api", "hosts learn from the store: no netplugin watches an API server"},
	{"cmd/netctl", "k8s.io/", "a client of the REST interface"},
	{"cmd/netctl", "go.etcd.io/", "a client of the REST interface"},
	{"cmd/netctl", module + "internal/control", "a client of the REST interface"},
	{"cmd/netctl", module + "internal/agent", "a client of netplugin's socket"},
	{"cmd/netctl", module + "internal/store", "a client of the REST interface"},
	{"cmd/netplugin", module + "internal/control", "an agent changes intent only by asking a netmaster"},
	{"cmd/netplugin", module + "internal/apiserver", "an agent is no server of the REST interface"},
	{"cmd/netmaster", module + "internal/driver/ebpf", "netmaster has no data plane"},
	{"cmd/netmaster", module + "internal/driver/ovs", "netmaster has no data plane"},
	{"cmd/netmaster", module + "internal/agent", "netmaster has no data plane"},
}
