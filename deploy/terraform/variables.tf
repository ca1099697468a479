variable "name" {
  description = "What the names of policies and roles begin with."
  type        = string
  default     = "seriatim"
}

variable "prefix" {
  description = "What the names of the tables begin with: the same as in SERIATIM_STORE=dynamodb://?prefix=..."
  type        = string
  default     = ""
}

variable "provisioned" {
  description = "Capacity by table, such as { messages = { read = 200, write = 1000 } }. Others are billed by request."
  type        = map(object({ read = number, write = number }))
  default     = {}
}

variable "topic_prefix" {
  description = "What the names of the topics begin with: the same as in SERIATIM_EVENTS=kafka://...?prefix=..."
  type        = string
  default     = ""
}

variable "kafka_profile" {
  description = "cluster: three copies, two of them in sync. single: one broker, one copy, for trying out."
  type        = string
  default     = "cluster"

  validation {
    condition     = contains(keys(local.kafka_profiles), var.kafka_profile)
    error_message = "The profiles are those of `seriatim topics create --profile`."
  }
}

variable "kafka_bootstrap_servers" {
  description = "Where Kafka is, as host:port each."
  type        = list(string)
}

variable "kafka_tls" {
  description = "Whether Kafka is spoken to over TLS."
  type        = bool
  default     = true
}

variable "tags" {
  description = "Tags of the tables."
  type        = map(string)
  default     = {}
}

variable "oidc_provider_arn" {
  description = "Of the Kubernetes cluster, for roles that its service accounts take. Empty: only policies are made."
  type        = string
  default     = ""
}

variable "oidc_audience" {
  description = "For whom the cluster's tokens are made out: one of the client ids of its OIDC provider."
  type        = string
  default     = "sts.amazonaws.com"
}

variable "namespace" {
  description = "Of the service accounts in Kubernetes."
  type        = string
  default     = "seriatim"
}
