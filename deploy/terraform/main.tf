# Tables, topics and policies are in the *.tf.json files, which are written from the code.

terraform {
  required_version = ">= 1.9"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.80, < 7"
    }
    kafka = {
      source  = "Mongey/kafka"
      version = ">= 0.8, < 1"
    }
  }
}

provider "kafka" {
  bootstrap_servers = var.kafka_bootstrap_servers
  tls_enabled       = var.kafka_tls
}
