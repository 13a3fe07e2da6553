// Package gatewayv1 is the API of the gateway: messages, clients and handlers, generated from gateway.proto.
package gatewayv1

import _ "embed"

// OpenAPI is the OpenAPI document of the services, in YAML, generated from gateway.proto. A gateway serves it
// under /openapi.yaml.
//
//go:embed gateway.openapi.yaml
var OpenAPI []byte
