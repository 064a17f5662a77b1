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
	{pkg: "internal/fields", why: "what fields mean is said once, to netctl too, and nothing is checked by it"},
	{pkg: "internal/base/waiting", why: "how goroutines wait, whatever for"},
	{pkg: "internal/base/reconcile", may: []string{"internal/base/waiting"}, why: "a generic runner that knows no networking"},
	{pkg: "internal/base/flags", why: "reads any program's command line, and knows none of its flags"},
	{pkg: "internal/base/durable", why: "writes bytes and locks files; contivk8s is made of it"},
	{pkg: "internal/base/pagetest", may: []string{"internal/base/flags"}, why: "writes pages of any subject"},
	{pkg: "internal/base/covering", why: "chooses rows of any test"},
	{pkg: "internal/base/checksum", why: "sums bytes, whatever they are"},
	{pkg: "internal/netmaster/access/audit", why: "writes lines, and asks nobody what is in them"},
	{pkg: "internal/security/strictjson", may: []string{"internal/model"}, why: "reads JSON of any client, and knows none of its fields"},
	{pkg: "internal/security/httpguard", may: []string{"api", "internal/model", "internal/security/transport"}, why: "guards any listener from browsers and from too many requests, and knows none of its clients"},
	{pkg: "internal/netmaster/access/token", may: []string{"internal/netmaster/access", "internal/security/httpguard", "internal/model", "internal/store", "internal/store/tables"}, why: "one way of knowing who asks; the store is given to it"},
	{pkg: "internal/netmaster/access/oidc", may: []string{"internal/netmaster/access", "internal/security/httpguard"}, why: "one way of knowing who asks, with nothing of its own in the store"},
	{pkg: "internal/netmaster/access", may: []string{"api", "internal/netmaster/access/audit", "internal/security/httpguard", "internal/model", "internal/security/pki"}, why: "identifies clients and decides; it is told what a request is about, and reads none"},
	{pkg: "internal/security/pki", may: []string{"internal/base/durable"}, why: "makes certificates and knows no connection"},
	{pkg: "internal/security/transport", may: []string{"internal/security/pki"}, why: "which end of a connection uses which TLS knows no program"},
	{pkg: "internal/daemon", may: []string{"internal/base/flags", "internal/security/httpguard", "internal/security/transport"}, why: "what surrounds any long-running program knows no program"},

	{pkg: "internal/condition", may: []string{"api"}, why: "the registry of what can be wrong checks nothing itself"},
	{pkg: "internal/daemon/supportbundle", may: []string{"api"}, why: "packs what others read, and knows no program"},

	{pkg: "internal/netmaster/ipam", may: []string{"internal/model"}, why: "allocators are pure: no store, no wire"},
	{pkg: "internal/datapath/desired", may: []string{"internal/model"}, why: "the desired state of a host is data only"},
	{pkg: "internal/store", may: []string{"internal/model", "internal/base/waiting"}, why: "the contract knows keys and values, no rows and no use-cases"},
	{pkg: "internal/store/engine", may: []string{"internal/model", "internal/store", "internal/base/waiting"}, why: "transactions stand on any backend and know no rows"},
	{pkg: "internal/store/tables", may: []string{"internal/model", "internal/store"}, why: "rows stand on the contract"},
	{pkg: "internal/store/cluster", may: []string{"internal/model", "internal/store", "internal/store/tables", "internal/security/transport", "internal/base/waiting"}, why: "election and registry stand on the contract, so they work on every store"},
	{
		pkg: "internal/store/storetest", may: []string{"internal/model", "internal/store", "internal/store/cluster", "internal/store/engine", "internal/store/tables"},
		why: "one conformance suite for all stores knows none of them",
	},
	{pkg: "internal/store/relay", may: []string{"api", "internal/security/strictjson", "internal/model", "internal/store", "internal/base/waiting"}, why: "hands mirrors on, of any store, whatever rows mean; its messages are of the REST interface"},
	{
		pkg: "internal/store/*", may: []string{"internal/base/durable", "internal/model", "internal/store", "internal/store/engine", "internal/store/tables", "internal/security/transport", "internal/base/waiting"},
		why: "a concrete store knows the contract, and is a backend of the engine",
	},
	{pkg: "internal/security/jointoken", may: []string{"internal/model"}, why: "hosts have it too, and no etcd"},
	{pkg: "internal/security/enrollment", may: []string{"internal/base/durable", "internal/security/jointoken", "internal/model", "internal/security/pki", "internal/security/transport"}, why: "a host gets a certificate, whatever for, and without etcd"},
	{pkg: "internal/netmaster/membership", may: []string{"internal/security/httpguard", "internal/base/durable", "internal/security/strictjson", "internal/security/jointoken", "internal/model", "internal/security/pki", "internal/security/transport", "internal/store", "internal/store/etcd", "internal/store/tables"}, why: "members are etcd's own matter: it knows that one store, and no program"},
	{pkg: "internal/datapath/compile", may: []string{"internal/model", "internal/datapath/desired"}, why: "compile is a pure function of the cluster's state"},
	{pkg: "internal/datapath/reachability", may: []string{"internal/model", "internal/datapath/desired"}, why: "a pure function of the desired state, as the reference is"},
	{pkg: "internal/netmaster/analysis", may: []string{"internal/model", "internal/store", "internal/store/cluster", "internal/store/tables", "internal/datapath/compile", "internal/datapath/desired", "internal/datapath/reachability"}, why: "answers by rows of the store, and changes none"},
	{pkg: "internal/netmaster/liveness", may: []string{"internal/base/waiting", "internal/condition", "internal/model", "internal/store", "internal/store/cluster", "internal/store/tables"}, why: "which hosts are alive is known without a use-case: it commits nothing"},
	{pkg: "internal/netmaster/control", may: []string{"internal/condition", "internal/model", "internal/netmaster/analysis", "internal/netmaster/ipam", "internal/netmaster/liveness", "internal/store", "internal/store/cluster", "internal/store/engine", "internal/store/relay", "internal/store/tables", "internal/base/waiting"}, why: "use-cases know neither wire shapes nor hosts"},
	{
		pkg: "internal/netmaster/apiserver", may: []string{"api", "internal/fields", "internal/netmaster/access", "internal/netmaster/access/audit", "internal/security/httpguard", "internal/security/strictjson", "internal/daemon/supportbundle", "internal/condition", "internal/model", "internal/netmaster/control", "internal/netmaster/liveness", "internal/datapath/compile", "internal/datapath/desired", "internal/datapath/reachability", "internal/datapath/reference", "internal/netmaster/analysis", "internal/netmaster/apiconv"},
		why: "HTTP is a thin adapter on use-cases; it asks control, never the store",
	},
	{pkg: "internal/netmaster/apiconv", may: []string{"api", "internal/model"}, why: "makes values of what is on the wire, and asks nobody"},
	{pkg: "internal/netmaster/kubernetes/translate", may: []string{"internal/model"}, why: "what Kubernetes' objects mean is pure: no watch, no store"},
	{pkg: "internal/netmaster/kubernetes/kubetest", why: "a judge of policies that shares nothing with what it judges"},
	{pkg: "internal/netmaster/kubernetes/objects", may: []string{"api", "internal/fields", "internal/model", "internal/netmaster/apiconv"}, why: "what Contiv's own objects are and mean is pure: no watch, no store"},
	{pkg: "internal/netmaster/kubernetes/mirror", may: []string{"internal/netmaster/kubernetes/objects", "internal/model", "internal/base/waiting"}, why: "a copy of the API server's objects gives them no meaning"},
	{pkg: "internal/netmaster/kubernetes/serviceaccount", may: []string{"internal/netmaster/kubernetes/mirror", "internal/model", "internal/base/waiting"}, why: "whose token it is, the API server says, and what that is good for is another's matter"},
	{pkg: "internal/netmaster/kubernetes/statusreport", may: []string{"internal/netmaster/kubernetes/translate", "internal/netmaster/kubernetes/mirror", "internal/netmaster/kubernetes/objects", "internal/base/waiting"}, why: "what became of an object is told to it, by nobody asked"},
	{pkg: "internal/netmaster/kubernetes/controller", may: []string{"internal/netmaster/control", "internal/netmaster/kubernetes/translate", "internal/netmaster/kubernetes/mirror", "internal/netmaster/kubernetes/objects", "internal/model", "internal/store", "internal/base/waiting"}, why: "an orchestrator is a thin adapter on use-cases"},

	{pkg: "internal/datapath/driver", may: []string{"internal/datapath/desired", "internal/model"}, why: "a driver gets data, not ids: it never reaches back into the database"},
	{pkg: "internal/datapath/reference", may: []string{"internal/datapath/driver", "internal/datapath/desired", "internal/model"}, why: "the reference data plane is made of the contract and the desired state: netmaster asks it too"},
	{
		pkg: "internal/datapath/conformance", may: []string{"internal/datapath/compile", "internal/base/covering", "internal/datapath/driver", "internal/datapath/shaping", "internal/datapath/desired", "internal/model", "internal/datapath/reference", "internal/base/reconcile"},
		why: "one conformance suite for all drivers knows none of them",
	},
	{pkg: "internal/netplugin/dns", may: []string{"internal/datapath/desired", "internal/model", "internal/security/transport"}, why: "fed by desired.DNS"},
	{pkg: "internal/netmaster/aci/acitest", why: "simulates what package aci talks to, and must not share a misreading with it"},
	{pkg: "internal/netmaster/aci", may: []string{"api", "internal/model", "internal/base/waiting"}, why: "keeps a fabric as it is told, and knows no store"},
	{pkg: "internal/netmaster/aci/controller", may: []string{"internal/netmaster/aci", "internal/netmaster/control", "internal/model", "internal/store", "internal/store/tables", "internal/base/waiting"}, why: "a thin adapter on use-cases: it chooses nothing"},
	{pkg: "internal/netplugin/bgp", may: []string{"internal/datapath/desired", "internal/model", "internal/base/waiting"}, why: "fed by desired.BGP"},

	{pkg: "internal/netplugin/attach/*", may: []string{"internal/netplugin/attach", "internal/model", "internal/base/waiting"}, why: "namespace plumbing knows requests and results only"},
	{pkg: "internal/netplugin/attach", may: []string{"internal/base/durable", "internal/model"}, why: "runtimes' requests know no agent: contivk8s stays small"},
	{
		pkg: "internal/netplugin/statemirror",
		may: []string{
			"internal/model", "internal/store", "internal/store/cluster", "internal/store/tables", "internal/datapath/compile", "internal/datapath/desired",
			"internal/datapath/driver", "internal/base/waiting", "internal/netplugin/attach", "internal/base/durable", "internal/netplugin/hostchanges", "internal/netplugin/hoststack",
		},
		why: "what a host should look like needs neither a netmaster nor to know how containers are attached",
	},
	{
		pkg: "internal/netplugin/masterclient", may: []string{"api", "internal/model", "internal/store", "internal/store/cluster", "internal/netplugin/attach", "internal/base/waiting"},
		why: "the way to netmaster knows neither attachments nor desired state",
	},
	{pkg: "internal/netplugin/l2announce", may: []string{"internal/base/checksum", "internal/model", "internal/base/waiting"}, why: "who answers neighbours knows neither services nor netmaster"},
	{pkg: "internal/netplugin/tracepacket", may: []string{"internal/model", "internal/base/checksum"}, why: "who sends a packet knows neither policies nor the store"},
	{pkg: "internal/netplugin/tunnelprobe", may: []string{"internal/model", "internal/datapath/desired", "internal/datapath/driver", "internal/base/waiting"}, why: "who tests tunnels knows neither the store nor which driver there is"},
	{pkg: "internal/netplugin/peerhealth", may: []string{"internal/model"}, why: "who asks hosts knows neither the store nor services"},
	{pkg: "internal/netplugin/multicast", may: []string{"internal/base/checksum", "internal/datapath/desired", "internal/datapath/driver", "internal/base/durable", "internal/model", "internal/base/waiting"}, why: "who hears what is one host's own matter: it knows neither the store nor netmaster"},
	{
		pkg: "internal/netplugin/fabric",
		may: []string{"internal/netplugin/bgp", "internal/datapath/compile", "internal/datapath/desired", "internal/base/durable", "internal/netplugin/hostchanges", "internal/netplugin/hoststack", "internal/model", "internal/store/tables", "internal/base/waiting"},
		why: "the speaker and the host's stack are told what a host has; who knows it is another",
	},
	{
		pkg: "internal/netplugin/attachment",
		may: []string{
			"api", "internal/model", "internal/store", "internal/store/tables", "internal/datapath/compile", "internal/datapath/desired", "internal/datapath/driver", "internal/base/waiting",
			"internal/netplugin/attach", "internal/netplugin/attach/vethpair", "internal/base/durable", "internal/netplugin/hostchanges", "internal/netplugin/hoststack", "internal/netplugin/masterclient", "internal/netplugin/hostsync", "internal/netplugin/statemirror",
		},
		why: "attachments know the desired state and netmaster, not who runs them",
	},
	{
		pkg: "internal/netplugin/observe",
		may: []string{
			"api", "internal/model", "internal/store", "internal/store/cluster", "internal/store/tables", "internal/datapath/desired", "internal/datapath/driver", "internal/base/waiting",
			"internal/netplugin/attach", "internal/netplugin/attach/vethpair", "internal/netplugin/attachment", "internal/netplugin/masterclient", "internal/netplugin/hostsync", "internal/netplugin/statemirror", "internal/netplugin/tracepacket", "internal/daemon/supportbundle", "internal/security/strictjson", "internal/condition", "internal/security/pki",
		},
		why: "who tells of a host decides nothing",
	},
	{
		pkg: "internal/netplugin/agent",
		may: []string{
			"internal/datapath/hostservices",
			"api", "internal/security/httpguard", "internal/security/strictjson", "internal/model", "internal/store", "internal/store/cluster", "internal/store/relay", "internal/store/tables", "internal/datapath/compile", "internal/datapath/desired", "internal/datapath/driver",
			"internal/netplugin/attachment", "internal/netplugin/fabric", "internal/netplugin/l2announce", "internal/netplugin/masterclient", "internal/netplugin/observe", "internal/netplugin/peerhealth", "internal/netplugin/hostsync", "internal/netplugin/statemirror", "internal/netplugin/tunnelprobe", "internal/daemon/supportbundle", "internal/netplugin/multicast", "internal/base/reconcile", "internal/base/waiting", "internal/netplugin/attach", "internal/netplugin/attach/*", "internal/base/durable", "internal/netplugin/hostchanges", "internal/netplugin/hoststack", "internal/netplugin/dns", "internal/netplugin/bgp", "internal/security/transport",
		},
		why: "the agent never imports control (it asks a netmaster by REST), and gets its store and driver from cmd",
	},
	{pkg: "internal/netplugin/hostchanges", may: []string{"internal/base/durable", "internal/base/waiting", "internal/model", "internal/security/strictjson"}, why: "remembers changes of the host, and makes none"},
	{
		pkg: "internal/netplugin/hostsync",
		may: []string{
			"internal/datapath/hostservices",
			"internal/security/transport", "internal/model", "internal/datapath/compile", "internal/datapath/desired", "internal/base/waiting",
			"internal/netplugin/attach", "internal/netplugin/attach/vethpair", "internal/netplugin/hoststack", "internal/netplugin/statemirror",
		},
		why: "the host's stack follows the desired state, and knows neither the store nor how containers are attached",
	},
	{pkg: "internal/netplugin/hoststack", may: []string{"internal/netplugin/hostchanges", "internal/netplugin/attach", "internal/datapath/desired", "internal/model"}, why: "the host's stack knows private addresses and ports, nothing of the cluster"},
	{pkg: "internal/netplugin/runtimes/cni", may: []string{"internal/netplugin/attach", "internal/model"}, why: "the plugin hands verbs to netplugin by attach's client, nothing more"},
	{pkg: "internal/netplugin/runtimes/cni/server", may: []string{"internal/base/durable", "internal/netplugin/attach", "internal/netplugin/runtimes/cni", "internal/model", "internal/security/strictjson"}, why: "verbs become attach requests, and kinds of error become codes; Install places files where runtimes look"},
	{pkg: "internal/netplugin/runtimes/mesos", may: []string{"internal/netplugin/attach", "internal/netplugin/runtimes/cni", "internal/netplugin/runtimes/cni/server", "internal/security/strictjson"}, why: "1.x's calls become invocations of the CNI plugin, nothing more"},
	{pkg: "internal/netplugin/runtimes/docker", may: []string{"internal/security/transport", "internal/netplugin/attach", "internal/base/durable", "internal/model", "internal/base/waiting"}, why: "verbs become attach requests, nothing more"},
	{pkg: "internal/netctl/installer", may: []string{"api", "internal/base/durable", "internal/security/jointoken", "internal/security/transport"}, why: "a machine is made a host by files and services; what a cluster has to say is netctl's to ask"},
	{pkg: "internal/netctl", may: []string{"api", "internal/base/flags", "internal/fields", "internal/netplugin/attach", "internal/daemon/supportbundle", "internal/condition", "internal/base/durable", "internal/security/pki", "internal/security/transport", "internal/netctl/installer"}, why: "netctl can do what any client of the REST interface, and of netplugin's socket, can"},

	{pkg: "internal/datapath/bpfattach", may: []string{"internal/model"}, why: "it holds programs, whatever they do"},
	{pkg: "internal/datapath/hostservices", may: []string{"internal/datapath/bpfattach", "internal/model"}, why: "sockets are served as its caller says, beside any driver"},
	{
		pkg: "internal/datapath/*", may: []string{"internal/base/checksum", "internal/datapath/bpfattach", "internal/datapath/driver", "internal/datapath/shaping", "internal/datapath/desired", "internal/base/durable", "internal/model", "internal/base/reconcile", "internal/base/waiting"},
		why: "a concrete driver makes the host look like the desired state, and knows nothing else",
	},

	{pkg: "internal/testcluster", free: true, why: "simulated hosts are made of everything, concrete stores and drivers included"},
	{pkg: "internal/testcluster/testenv", may: []string{"internal/security/pki"}, why: "around the tests of any package"},
	{pkg: "internal/testcluster/*", free: true, why: "what simulated hosts run beside Contiv"},
	{pkg: "internal/archtest", why: "tests of any package ask it"},
	{pkg: "cmd/*", free: true, why: "flags, wiring, run: the only place that picks a concrete store or driver"},
	{pkg: "test/*", free: true, why: "suites that need the real thing"},
	{pkg: "packaging/*", why: "packs what others have built"},
	{pkg: "bench/*", free: true, why: "benchmark programs"},
}

// standardOnly may import nothing but the standard library and each other.
var standardOnly = map[string]string{
	"api":                       "others import it; it must not drag anything in",
	"internal/model":            "parsing and invariants need no library",
	"internal/datapath/desired": "data only",
	"internal/netmaster/ipam":   "pure",
	"internal/base/durable":     "linked into contivk8s",
	"internal/base/waiting":     "imported from everywhere",
	"internal/netplugin/attach": "linked into contivk8s, which a runtime starts for every container",
	"internal/archtest":         "tests of any package ask it",
}

// importedBy says which packages alone may import a library.
var importedBy = []struct {
	prefix string // of import paths
	may    []string
	why    string
}{
	{
		"k8s.io/client-go",
		[]string{"internal/netmaster/kubernetes/mirror", "internal/netmaster/kubernetes/statusreport", "internal/netmaster/kubernetes/serviceaccount", "cmd/netmaster", "test/*", "bench/*"},
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
	{"cmd/contivk8s", module + "internal/netplugin/runtimes/cni/server", "what understands configurations is in netplugin, whose tables are made"},
	{"cmd/contivk8s", module + "internal/netplugin/agent", "started for every container: small, talks to netplugin only"},
	{"cmd/contivk8s", module + "internal/store", "started for every container: small, talks to netplugin only"},
	{"cmd/contivk8s", "k8s.io/", "started for every container: small, talks to netplugin only"},
	{"cmd/netplugin", "k8s.io/a", "hosts learn from the store: no netplugin watches an API server"},
	{"cmd/netplugin", "k8s.io/client-go", "hosts learn from the store: no netplugin watches an API server"},
	{"cmd/netplugin", "sigs.k8s.io/network-policy-api", "hosts learn from the store: no netplugin watches an API server"},
	{"cmd/netctl", "k8s.io/", "a client of the REST interface"},
	{"cmd/netctl", "go.etcd.io/", "a client of the REST interface"},
	{"cmd/netctl", module + "internal/netmaster/control", "a client of the REST interface"},
	{"cmd/netctl", module + "internal/netplugin/agent", "a client of netplugin's socket"},
	{"cmd/netctl", module + "internal/store", "a client of the REST interface"},
	{"cmd/netplugin", module + "internal/netmaster/control", "an agent changes intent only by asking a netmaster"},
	{"cmd/netplugin", module + "internal/netmaster/apiserver", "an agent is no server of the REST interface"},
	{"cmd/netmaster", module + "internal/datapath/ebpf", "netmaster has no data plane"},
	{"cmd/netmaster", module + "internal/datapath/ovs", "netmaster has no data plane"},
	{"cmd/netmaster", module + "internal/netplugin/agent", "netmaster has no data plane"},
}
