package docker

// The requests and answers of libnetwork's remote protocol; see docs/remote.md
// and docs/ipam.md of github.com/moby/libnetwork. Fields that this package does not
// use are left out.

type empty struct{}

type activateResponse struct {
	Implements []string
}

type driverCapabilities struct {
	Scope             string
	ConnectivityScope string
}

type ipamData struct {
	AddressSpace string
	Pool         string // CIDR
	Gateway      string // CIDR
	AuxAddresses map[string]any
}

type createNetworkRequest struct {
	NetworkID          string
	Options            map[string]any
	IPv4Data, IPv6Data []ipamData
}

type networkRequest struct {
	NetworkID string
}

type allocateNetworkRequest struct {
	NetworkID string
	Options   map[string]string
}

type allocateNetworkResponse struct {
	Options map[string]string
}

type endpointInterface struct {
	Address     string `json:",omitempty"` // CIDR
	AddressIPv6 string `json:",omitempty"`
	MacAddress  string `json:",omitempty"`
}

type createEndpointRequest struct {
	NetworkID  string
	EndpointID string
	Interface  *endpointInterface
	Options    map[string]any
}

type createEndpointResponse struct {
	Interface *endpointInterface `json:",omitempty"` // only what the request left open
}

type endpointRequest struct {
	NetworkID  string
	EndpointID string
}

// portMapping is an element of the option keyPortMap.
type portMapping struct {
	Proto                       uint8
	HostIP                      string
	Port, HostPort, HostPortEnd uint16
}

type connectivityRequest struct {
	endpointRequest
	Options struct {
		PortMap []portMapping `json:"com.docker.network.portmap"`
	}
}

type operInfoResponse struct {
	Value map[string]any
}

type interfaceName struct {
	SrcName   string
	DstPrefix string
}

type joinRequest struct {
	endpointRequest
	SandboxKey string // path of the container's network namespace, as the engine sees it
}

type joinResponse struct {
	InterfaceName         *interfaceName
	Gateway               string        `json:",omitempty"`
	GatewayIPv6           string        `json:",omitempty"`
	StaticRoutes          []staticRoute `json:",omitempty"`
	DisableGatewayService bool
}

// staticRoute is a route that libnetwork makes before it sets the gateway.
type staticRoute struct {
	Destination string
	RouteType   int
}

// routeConnected is a route without next hop.
const routeConnected = 1

type ipamCapabilities struct {
	RequiresMACAddress    bool
	RequiresRequestReplay bool
}

type addressSpaces struct {
	LocalDefaultAddressSpace  string
	GlobalDefaultAddressSpace string
}

type requestPoolRequest struct {
	AddressSpace string
	Pool         string
	SubPool      string
	Options      map[string]string
	V6           bool
}

type requestPoolResponse struct {
	PoolID string
	Pool   string
	Data   map[string]string
}

type releasePoolRequest struct {
	PoolID string
}

type requestAddressRequest struct {
	PoolID  string
	Address string
	Options map[string]string
}

type requestAddressResponse struct {
	Address string // CIDR
	Data    map[string]string
}

type releaseAddressRequest struct {
	PoolID  string
	Address string
}

// errorResponse is the answer when a call fails: libnetwork looks for Err in
// answers of network drivers, and for Error in those of IPAM drivers.
type errorResponse struct {
	Err   string
	Error string
}

func failure(text string) errorResponse { return errorResponse{text, text} }

// Keys of options that libnetwork sets.
const (
	keyGeneric     = "com.docker.network.generic"
	keyInternal    = "com.docker.network.internal"
	keyGateway     = "com.docker.network.gateway"
	keyAddressType = "RequestAddressType"
)
