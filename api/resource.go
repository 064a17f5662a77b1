package api

import (
	"context"
	"net/http"
	"net/url"
)

// Resource is one collection of objects: T is the object, O its operational
// state.
type Resource[T Object, O any] struct {
	c          *Client
	collection string
}

// Collection returns the collection's name in paths.
func (r Resource[T, O]) Collection() string { return r.collection }

// List returns all objects of the collection.
func (r Resource[T, O]) List(ctx context.Context) ([]T, error) {
	var out []T
	err := r.c.Do(ctx, http.MethodGet, "/api/v1/"+r.collection+"/", nil, &out)
	return out, err
}

// Get returns one object.
func (r Resource[T, O]) Get(ctx context.Context, key string) (T, error) {
	var out T
	err := r.c.Do(ctx, http.MethodGet, r.path(key), nil, &out)
	return out, err
}

// Create creates an object, or updates it when it exists, and returns it as
// stored.
func (r Resource[T, O]) Create(ctx context.Context, o T) (T, error) {
	return r.send(ctx, http.MethodPost, o)
}

// Update is Create by PUT.
func (r Resource[T, O]) Update(ctx context.Context, o T) (T, error) {
	return r.send(ctx, http.MethodPut, o)
}

func (r Resource[T, O]) send(ctx context.Context, method string, o T) (T, error) {
	var out T
	err := r.c.Do(ctx, method, r.path(o.ObjectKey()), o, &out)
	return out, err
}

// Delete deletes an object.
func (r Resource[T, O]) Delete(ctx context.Context, key string) error {
	return r.c.Do(ctx, http.MethodDelete, r.path(key), nil, nil)
}

// Inspect returns an object with its operational state.
func (r Resource[T, O]) Inspect(ctx context.Context, key string) (Inspection[T, O], error) {
	var out Inspection[T, O]
	err := r.c.Do(ctx, http.MethodGet, "/api/v1/inspect/"+r.collection+"/"+url.PathEscape(key)+"/", nil, &out)
	return out, err
}

func (r Resource[T, O]) path(key string) string {
	return "/api/v1/" + r.collection + "/" + url.PathEscape(key) + "/"
}

// InspectEndpoint returns an endpoint by endpoint id, container id or exact
// name.
func (c *Client) InspectEndpoint(ctx context.Context, key string) (EndpointOper, error) {
	var out Inspection[struct{}, EndpointOper]
	err := c.Do(ctx, http.MethodGet, "/api/v1/inspect/endpoints/"+url.PathEscape(key)+"/", nil, &out)
	return out.Oper, err
}

// DrainEndpoint says that services send an endpoint no new connections, or (not
// drain) that they do again. The key is one that InspectEndpoint takes.
func (c *Client) DrainEndpoint(ctx context.Context, key string, drain bool) (EndpointOper, error) {
	method, body := http.MethodPost, any(struct{}{})
	if !drain {
		method, body = http.MethodDelete, nil
	}
	var out EndpointOper
	err := c.Do(ctx, method, "/api/v1/endpoints/"+url.PathEscape(key)+"/drain", body, &out)
	return out, err
}

const (
	pathAllocAddress   = "/plugin/allocAddress"
	pathReleaseAddress = "/plugin/releaseAddress"
	pathPod            = "/plugin/pod"
	pathNetwork        = "/plugin/network"
	pathCreateEndpoint = "/plugin/createEndpoint"
	pathDeleteEndpoint = "/plugin/deleteEndpoint"
	pathUpdateEndpoint = "/plugin/updateEndpoint"
)

// AllocAddress reserves an address before its endpoint exists.
func (c *Client) AllocAddress(ctx context.Context, req AllocAddressRequest) (AllocAddressResponse, error) {
	return post[AllocAddressResponse](ctx, c, pathAllocAddress, req)
}

// ReleaseAddress gives a reserved address back.
func (c *Client) ReleaseAddress(ctx context.Context, req ReleaseAddressRequest) error {
	return c.Do(ctx, http.MethodPost, pathReleaseAddress, req, nil)
}

// PlacePod asks where an interface of a pod of Kubernetes belongs.
func (c *Client) PlacePod(ctx context.Context, p PodPlacementRequest) (PodPlacement, error) {
	return post[PodPlacement](ctx, c, pathPod, p)
}

// PlaceEndpoint asks on which network an endpoint is to be.
func (c *Client) PlaceEndpoint(ctx context.Context, p EndpointPlacement) (EndpointPlacement, error) {
	return post[EndpointPlacement](ctx, c, pathNetwork, p)
}

// CreateEndpoint creates an endpoint; repeating it is harmless.
func (c *Client) CreateEndpoint(ctx context.Context, req CreateEndpointRequest) (CreateEndpointResponse, error) {
	return post[CreateEndpointResponse](ctx, c, pathCreateEndpoint, req)
}

// DeleteEndpoint deletes an endpoint. One that is not there is an error for
// which IsNotFound holds.
func (c *Client) DeleteEndpoint(ctx context.Context, req DeleteEndpointRequest) (DeleteEndpointResponse, error) {
	return post[DeleteEndpointResponse](ctx, c, pathDeleteEndpoint, req)
}

// UpdateEndpoint tells what the runtime knows of an endpoint's container.
func (c *Client) UpdateEndpoint(ctx context.Context, req UpdateEndpointRequest) (UpdateEndpointResponse, error) {
	return post[UpdateEndpointResponse](ctx, c, pathUpdateEndpoint, req)
}

func post[R any](ctx context.Context, c *Client, path string, req any) (R, error) {
	var out R
	err := c.Do(ctx, http.MethodPost, path, req, &out)
	return out, err
}

// Version returns the server's build.
func (c *Client) Version(ctx context.Context) (Version, error) {
	var out Version
	err := c.Do(ctx, http.MethodGet, "/version", nil, &out)
	return out, err
}

// Info returns the server's role and the nodes that it knows.
func (c *Client) Info(ctx context.Context) (Info, error) {
	var out Info
	err := c.Do(ctx, http.MethodGet, "/info", nil, &out)
	return out, err
}

// Services lists the load-balanced services.
func (c *Client) Services(ctx context.Context) ([]ServiceInfo, error) {
	var out []ServiceInfo
	err := c.Do(ctx, http.MethodGet, "/services", nil, &out)
	return out, err
}

// Service returns one load-balanced service by its id, "service:tenant".
func (c *Client) Service(ctx context.Context, id string) (ServiceInfo, error) {
	var out []ServiceInfo
	err := c.Do(ctx, http.MethodGet, "/service/"+url.PathEscape(id), nil, &out)
	if err == nil && len(out) == 0 {
		err = &Error{Status: http.StatusNotFound, Message: "service \"" + id + "\" does not exist"}
	}
	if err != nil {
		return ServiceInfo{}, err
	}
	return out[0], nil
}
